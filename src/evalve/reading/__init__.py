"""Tests that read the records of evaluations: whoever needs one first runs it, the others wait for it."""
