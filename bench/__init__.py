"""How well evalve does, as figures that a reader can make again: `python -m bench`.

Figures compare two sides that were measured in turn within one run, so that a slow or busy machine
slows both. Every benchmark runs in a process and a folder of its own.
"""
