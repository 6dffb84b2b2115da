"""evalve runs LLM and agent evaluations in parallel, records every sample, and resumes after a crash."""
