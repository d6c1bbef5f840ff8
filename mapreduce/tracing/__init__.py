"""Teaching: what a job did between its input and its output, and whether it may do so.

:mod:`mapreduce.tracing.engine` runs a job task by task and keeps a trace, which is plain data
(:mod:`mapreduce.tracing.model`); the views show it on a terminal and as a page, and
:mod:`mapreduce.tracing.laws` compares traces of runs that must not differ.
"""
