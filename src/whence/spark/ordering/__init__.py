"""Causal order of rows on Spark: streams and tables."""
