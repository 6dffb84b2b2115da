"""`evalve.yaml` as a file: its keys, where its values stand, what is wrong with it."""
