"""Tournaments between replicas that train apart."""
