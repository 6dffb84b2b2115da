"""What each provider's HTTP means."""
