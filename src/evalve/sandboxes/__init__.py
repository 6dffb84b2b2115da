"""What evalve lends to attempts: a directory of their own, a client that nobody else has meanwhile."""
