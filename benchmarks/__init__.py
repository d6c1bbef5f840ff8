"""Measurements: ours and the peer's in turn, in one run."""
