"""The auditor of logs that others wrote: one model, readers into it, one judge of it."""
