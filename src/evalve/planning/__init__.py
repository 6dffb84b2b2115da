"""`evalve plan`: what a run will take, before anything is spent."""
