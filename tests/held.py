"""A model whose training stands still after a published round, until its processes are ended.

So whoever waits for a round before he ends a training may be as late as he likes. The variable
``HELD`` has the folder of the run's rounds; without it, the model is softmax regression.
"""

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from mapreduce.engine.rounds import RoundFiles
from mapreduce.models.softmax import Softmax
from mapreduce.runs.directory import RunDir

#: Of a training by the model; due rounds are published, however fast it is.
MODEL = ["--model", "held:Held", "--checkpoint-every", 100]


def environment(run: RunDir, env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of a command whose training stands still; other commands trust its model."""
    # Beside this file is a folder that has the name of the toolkit.
    (place := Path(f"{run.path}-model")).mkdir()
    shutil.copy(__file__, place)
    return {**env, "PYTHONPATH": str(place), "HELD": str(run.rounds.folder)}


class Held(Softmax):
    def gradient(self, *arguments):
        place = os.environ.get("HELD")
        while place and max(RoundFiles(Path(place)).complete(), default=0) > 0:
            time.sleep(0.01)
        return super().gradient(*arguments)
