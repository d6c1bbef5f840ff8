"""What a job did between its input and its output.

:mod:`mapreduce.explaining.engine` runs a job task by task and keeps a trace, which is plain data
(:mod:`mapreduce.explaining.model`); the views show it on a terminal and as a page.
"""
