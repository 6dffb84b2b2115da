"""Two experiments, or two variants, beside each other."""
