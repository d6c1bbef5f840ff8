"""Averaging of replicas that take local steps."""
