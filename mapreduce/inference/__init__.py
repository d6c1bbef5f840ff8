"""Scores and predictions of a trained model."""
