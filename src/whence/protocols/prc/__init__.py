"""Paper 003: link memory and PRC-broadcast."""
