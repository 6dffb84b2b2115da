"""One sample in full: its facts, what was said, and what it did."""
