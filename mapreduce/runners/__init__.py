"""Runners: what executes the steps of a job, by the name that ``-r`` takes."""

from mapreduce import compat

# Every module of this package imports mrjob.
compat.install()
