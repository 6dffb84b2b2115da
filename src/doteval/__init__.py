"""The names of doteval's published documentation, so that files written for it run unchanged."""
