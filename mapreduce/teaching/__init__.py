"""Teaching: what a job did between its input and its output, and whether it may do so.

:mod:`mapreduce.teaching.engine` runs a job task by task and keeps a trace, which is plain data
(:mod:`mapreduce.teaching.model`); the views show it on a terminal and as a page, and
:mod:`mapreduce.teaching.laws` compares traces of runs that must not differ.
"""
