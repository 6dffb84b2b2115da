"""The ways into the gate."""
