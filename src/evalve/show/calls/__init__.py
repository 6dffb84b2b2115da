"""What the verbs about calls tell: limits, cache, batches, gateway."""
