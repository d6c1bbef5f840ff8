"""The executors of rounds, by name. ``--help`` needs them, so it imports nothing slow."""

from mapreduce.support.registry import Registry

EXECUTORS = Registry(
    "executor",
    "gradreduce.executors",
    {
        "chain": "mapreduce.executors.chain:Chain",
        "gang": "mapreduce.executors.gang.job:Gang",
        "here": "mapreduce.executors.here:InProcess",
    },
    base="mapreduce.executors.resumable:Resumable",
    also=("auto",),
)
