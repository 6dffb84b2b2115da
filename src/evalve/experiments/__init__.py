"""`evalve.yaml`: what it may say, and the experiments that it declares."""
