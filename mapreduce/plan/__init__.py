"""Plans: the immutable description of a training."""
