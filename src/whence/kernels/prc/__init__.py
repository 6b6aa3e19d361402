"""Paper 003 compiled: the kernel, its state, its steps."""
