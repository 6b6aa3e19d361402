"""Measures of a trace, each a pure function from DataFrame to DataFrame."""
