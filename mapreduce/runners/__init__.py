"""Runners: what executes the steps of a job, by the name that ``-r`` takes."""
