"""The same cores on real sockets."""
