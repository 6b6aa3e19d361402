"""Paper 001: causal and Δ-causal barriers, store-carry-forward."""
