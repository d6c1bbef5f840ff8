"""Predictions over HTTP, by the Open Inference Protocol V2: ``gradreduce serve``.

A request passes through these rooms: ``connections`` (bytes, deadlines), ``http`` (paths, bodies),
``protocol`` and ``tables`` (rows), ``turns`` (what is computed together), ``model`` (predictions).
``workers`` has the processes, ``metrics`` what they count together.
"""
