"""Runs: the folder of a training."""
