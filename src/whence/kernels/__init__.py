"""Numba accelerators of simulation models: the core is the definition, a kernel gives the same events."""
