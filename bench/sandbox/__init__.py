"""The PostgreSQL sandbox: agents that misbehave in it, and what it costs."""
