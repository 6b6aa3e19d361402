"""Paper 001 compiled: the kernel, its state, its steps, the order."""
