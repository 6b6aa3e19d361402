"""The study of paper 000."""
