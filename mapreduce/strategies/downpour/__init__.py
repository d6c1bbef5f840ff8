"""Downpour: replicas push gradients of earlier versions of the model."""
