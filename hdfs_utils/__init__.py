"""Bytes and files: publishing them so that nobody ever sees half of one.

The package knows nothing of arrays, models or jobs.
"""
