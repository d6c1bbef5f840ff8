"""What mrjob 0.7 lacks, or has no hook for, supplied from outside."""

from mapreduce import compat

# Every module of this package imports mrjob.
compat.install()
