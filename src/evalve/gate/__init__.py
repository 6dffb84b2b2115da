"""The gate: the one place that every call to a provider passes. `exchange` has the order of its layers."""
