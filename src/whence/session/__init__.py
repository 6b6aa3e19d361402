"""Connections between nodes as state machines: bytes and times in, bytes and events out."""
