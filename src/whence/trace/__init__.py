"""The one format that every host writes and every tool reads. Specified in docs/trace-format.md."""
