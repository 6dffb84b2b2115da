"""The simulated agents: what they do, and where they err."""
