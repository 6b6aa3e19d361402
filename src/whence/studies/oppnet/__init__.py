"""The study of paper 001."""
