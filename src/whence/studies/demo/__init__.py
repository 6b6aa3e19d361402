"""The demonstration study."""
