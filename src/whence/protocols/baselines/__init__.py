"""Baselines: flooding, FIFO, reliable and vector-clock broadcast."""
