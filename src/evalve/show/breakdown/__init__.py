"""What the scores of an evaluation say beside its metrics: misses, groups, repeats."""
