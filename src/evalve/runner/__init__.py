"""A sample's journey: planned, lent a slot, run, recorded. Start reading in `evaluation`."""
