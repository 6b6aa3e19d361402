"""The study of paper 002."""
