"""``-r spark``: the tasks of ``-r parallel``, which Spark's executors on this machine run."""
