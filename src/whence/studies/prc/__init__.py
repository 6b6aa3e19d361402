"""The study of paper 003."""
