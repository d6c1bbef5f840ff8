"""The loop that trains a model."""
