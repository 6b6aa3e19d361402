"""Paper 000 compiled: the kernel, its state, its steps."""
