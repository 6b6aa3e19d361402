"""Paper 002 compiled: the kernel, its state, its steps, the bounds."""
