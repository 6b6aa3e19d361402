"""Whence: causal messaging. A library, a laboratory and an auditor for causal order."""
