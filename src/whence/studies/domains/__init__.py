"""The study of paper 004."""
