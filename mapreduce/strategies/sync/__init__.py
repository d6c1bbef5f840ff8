"""Synchronous data parallelism."""
