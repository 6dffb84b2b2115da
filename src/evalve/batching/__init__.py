"""Batches on the level of wiring: the queue of the process, what a run is told, the verbs of the command."""
