"""One file for each agent that evalve knows: a spec, and a pure reader of its output."""
