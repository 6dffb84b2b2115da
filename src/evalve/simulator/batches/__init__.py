"""The batch APIs of Anthropic and OpenAI: many requests at once, answered later."""
