"""The independent witness: rebuilds happened-before from a trace. Imports no protocol."""
