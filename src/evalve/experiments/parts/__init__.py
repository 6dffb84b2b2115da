"""What an experiment is made of: whom it asks, about which rows, with what, and what scores."""
