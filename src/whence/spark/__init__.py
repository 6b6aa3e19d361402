"""The data pipeline: sweeps, verification and measures on Spark."""
