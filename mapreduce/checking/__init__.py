"""Whether a job's output depends on what it must not depend on.

:mod:`mapreduce.checking.laws` says in which ways a job may be run, and
:mod:`mapreduce.checking.checker` compares the traces of those runs, which
:mod:`mapreduce.explaining` makes.
"""
