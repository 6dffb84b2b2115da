"""Agents: command-line programs, or functions, that work on a sample in a directory of its own.

`named.py` makes one by name, `agent.py` runs it; `supervisor/` is the program that holds its processes.
"""
