"""Strategies: what a round means, in map and in reduce."""
