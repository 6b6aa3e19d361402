"""A group that remembers: every node keeps a log, a peer is a cursor into it (paper 001, made live)."""
