"""Runners: what executes the steps of a job, by the name that ``-r`` takes."""

from mapreduce import compat

# Most modules of this package import mrjob.
compat.supply()
