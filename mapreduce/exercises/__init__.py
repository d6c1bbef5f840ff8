"""Exercises as data: whether a job gives the right answer, obeys the laws, and what it costs."""
