"""Layers, and the networks that are made of them."""
