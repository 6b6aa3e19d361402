"""Paper 004: matrix clocks in causality domains."""
