"""What the simulator says over the wire, one module for each provider's format."""
