"""``gradreduce replay``: repeats an asynchronous training from its log."""

import contextlib
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from hdfs_utils.paths import AnyPath
from mapreduce.cli.common import (
    FOLDER,
    LOCATION,
    moved_data_option,
    open_run,
    output_options,
    pin_profile,
    print_json,
    quiet_mrjob,
    remote_data_option,
    runner_options,
    trust_option,
)
from mapreduce.cli.grouping import GroupedCommand
from mapreduce.support.printable import echo


@click.command(cls=GroupedCommand)
@click.argument("run", type=LOCATION)
@click.option("--out", type=FOLDER, help="Keep the new run in this folder. It must not exist.")
@runner_options()
@moved_data_option
@click.option(
    "--eval", "evaluation", type=LOCATION, help="Folder of the evaluation data, if they have moved."
)
@remote_data_option
@trust_option
@output_options
def replay(run: AnyPath, out: Path | None, as_json: bool, quiet: bool, **values: Any) -> None:
    """Train the asynchronous RUN again, by its log, and compare the models.

    Each gradient is computed for the same version of the model as in RUN, and the gradients are
    applied in the same order. So the model is the same to the last bit, for any number of workers.
    The blocks are those of the log. RUN is only read. If the models differ, the command ends with
    an error.
    """
    pin_profile(run)
    quiet_mrjob()
    from mapreduce.runs import flags, pushes
    from mapreduce.runs.events import Events
    from mapreduce.training.console import Display
    from mapreduce.training.replaying import replay as replayed
    from mapreduce.training.start import MOVING, moved_data

    found = open_run(run, None, values.pop("trust"))
    moved = moved_data(found, {name: values.pop(name) for name in MOVING})
    execution = flags.execution(values)
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        if out is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gradreduce-replay-"))
            out = Path(folder, "run")
        display = Display(quiet)
        stack.callback(display.close)
        ended = replayed(found, out.absolute(), execution, Events(display), moved)
    late = pushes.staleness(found)
    assert late is not None
    seconds = round(time.monotonic() - started, 3)
    if as_json:
        content = {"run": str(run), "model_sha256": ended.model_sha256, **late._asdict()}
        print_json({**content, "seconds": seconds})
        return
    echo(
        f"replayed {late.pushes:,} gradients in {seconds:.1f} s; their staleness was "
        f"{late.mean:.3g} in the mean, {late.most:,} at most"
    )
    echo(f"model_sha256 {ended.model_sha256}, as in {run}")
