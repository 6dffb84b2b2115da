"""How the conversations are made, and what is expected in them."""
