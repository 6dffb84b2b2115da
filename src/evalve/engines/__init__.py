"""Where the function of an evaluation runs; `choosing` says which engine serves which evaluation."""
