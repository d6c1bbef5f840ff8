"""Training and inference as chained map/reduce steps on mrjob.

Importing this package does no work; ``mapreduce.job`` holds the class that jobs inherit from and
``mapreduce.driver`` the loop that trains a model.
"""

__version__ = "0.1.0"
