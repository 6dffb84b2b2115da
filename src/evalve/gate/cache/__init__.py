"""Answers that are kept: who makes a call, and who is given what was answered before."""
