"""The gang: the rounds of a plan in one map-only job, whose tasks stay and talk to each other.

The driver starts the job (``job.py``) and follows what it publishes (``follow.py``). Each task is a
rank (``rank.py``): it meets the others through files in the run's directory (``rendezvous.py``),
opens streams to them (``transport.py``) and takes part in the rounds (``rounds.py``).
"""
