"""The deterministic laboratory: the same cores, a simulated world."""
