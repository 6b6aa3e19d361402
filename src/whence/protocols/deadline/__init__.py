"""Paper 002: deadline-constrained causal order, TDCA and ODCA."""
