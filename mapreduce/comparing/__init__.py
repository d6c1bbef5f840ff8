"""Several models compared on one table by cross-validation: ``gradreduce compare``."""
