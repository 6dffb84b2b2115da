"""The batch queue: calls that wait for each other, go out together, and cost half."""
