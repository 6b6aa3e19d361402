"""Logs that we did not write: their model, their readers, what can be judged from them."""
