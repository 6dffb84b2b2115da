"""The machine that samples run on: what is left of it, and who may start another process."""
