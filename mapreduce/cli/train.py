"""``gradreduce train`` and ``gradreduce resume``."""

import shlex
import time
from typing import TYPE_CHECKING, Any

import click

from mapreduce import options
from mapreduce.cli.common import (
    LOCATION,
    add_options,
    output_options,
    pin_profile,
    print_json,
    printable,
    quiet_mrjob,
    remote_data_option,
    require_named,
    runner_options,
    scores,
)

if TYPE_CHECKING:
    from mapreduce.executors.chain import ChainJob, Execution
    from mapreduce.plan import Plan
    from mapreduce.rundir import RunDir


@click.command(context_settings={"max_content_width": 100})
@click.argument("data", type=LOCATION)
@click.option(
    "--run", type=LOCATION, required=True, help="Folder of the run, which must not exist."
)
@add_options(options.PLAN)
@click.option("--eval", "evaluation", type=LOCATION, help="Dataset to evaluate on.")
@runner_options()
@add_options(options.EXECUTION)
@add_options((options.PROFILE,))
@click.option("--dry-run", is_flag=True, help="Show the plan, and do nothing.")
@output_options
@click.pass_context
def train(context: click.Context, /, **values: Any) -> None:
    """Train a model on the dataset DATA.

    Arguments after -- go to mrjob, for every job of the training.

    \b
    gradreduce train demo/data/train --run demo/run --model mlp:64 --eval demo/data/test
    """
    start({**values, "mrjob_arguments": context.obj})


def start(values: dict[str, Any], job_class: "type[ChainJob] | None" = None) -> None:
    """Start a training from the values of all options.

    Parameters
    ----------
    values : dict
    job_class : type, optional
        The job whose steps are the rounds, if it is not the toolkit's own.
    """
    from mapreduce import numeric

    numeric.pin(values["numeric_profile"])
    quiet_mrjob()
    from mapreduce import driver
    from mapreduce.errors import DataError, MissingInputError

    settings = options.settings(values)
    execution = options.execution(values)
    if values["dry_run"]:
        _show_plan(driver.plan(settings, values["data"], values["evaluation"]), execution, values)
        return
    run = driver.create(
        values["run"],
        settings,
        values["data"],
        values["evaluation"],
        numeric_profile=values["numeric_profile"],
    )
    try:
        _train(run, execution, values, job_class)
    except Exception as error:
        # The same command works when the data are mended. A task's error has the code of its cause.
        code = getattr(error, "exit_code", None)
        if code in (DataError.exit_code, MissingInputError.exit_code):
            run.remove_if_unused()
        raise


@click.command(context_settings={"max_content_width": 100})
@click.argument("run", type=LOCATION)
@runner_options(defaults=False)
@add_options(options.EXECUTION, defaults=False)
@remote_data_option
@click.option("--take-over", is_flag=True, help="From a driver on another host that has ended.")
@output_options
@click.pass_context
def resume(context: click.Context, /, **values: Any) -> None:
    """Go on with RUN from its last round, to the same bits as if it had never stopped.

    Options that are not given are as they were. But a run may be a stranger's: a runner other than
    inline, parallel and local, and arguments for mrjob, after --, are to be named again.
    """
    pin_profile(values["run"])
    quiet_mrjob()
    from mapreduce.rundir import RunDir

    run = RunDir(values["run"].absolute())
    assert run.config
    before, arguments = options.recorded(run)
    require_named(run, values["remote_data"])
    runner = before.get("runner", "parallel")
    _name_again(run, values["runner"], runner, [] if context.obj else arguments)
    defaults: dict[str, Any] = {option.name: option.default for option in options.EXECUTION}
    defaults |= {"runner": "parallel", "workers": None, "start_method": None}
    if values["executor"] not in (None, before.get("executor", "chain")):
        # The other executor has defaults of its own.
        before.pop("blocks", None)
    given = {name: value for name, value in values.items() if value is not None}
    if context.obj:
        given["mrjob_arguments"] = context.obj
    merged = {**defaults, **before, **given}
    _train(run, options.execution(merged), merged, None)


def _name_again(run: "RunDir", given: str | None, runner: str, arguments: list[str]) -> None:
    """Say what of a run's last execution the command line has to name again, and how.

    Raises
    ------
    UsageError
        It is the runner.
    """
    from mapreduce.errors import UsageError

    runner = given or runner
    is_elsewhere = runner not in options.RUNNERS_HERE
    command = ["gradreduce", "resume", str(run.path), *(["-r", runner] if is_elsewhere else [])]
    again = printable(shlex.join([*command, *(["--", *arguments] if arguments else [])]))
    if given is None and is_elsewhere:
        raise UsageError(
            f"{run.path} was last run with -r {printable(runner)}, which may run programs or cost "
            f"money. If the run is yours, name that again: {again}"
        )
    if arguments:
        click.echo(
            "warning: arguments for mrjob are left out, since they can run programs. If they are "
            f"yours, name them again: {again}",
            err=True,
        )


def _train(
    run: "RunDir",
    execution: "Execution",
    values: dict[str, Any],
    job_class: "type[ChainJob] | None",
) -> None:
    from mapreduce import driver
    from mapreduce.cli import progress
    from mapreduce.errors import Interrupted
    from mapreduce.events import Events
    from mapreduce.executors.chain import ChainJob

    display = progress.subscriber(values["quiet"])
    started = time.monotonic()
    try:
        ended = driver.train(
            run,
            execution,
            values["keep"],
            Events(display),
            take_over=values.get("take_over", False),
            job_class=job_class or ChainJob,
        )
    except Interrupted:
        display.close()
        click.echo(
            f"interrupted; the last round is saved. Go on with: gradreduce resume {run.path}",
            err=True,
        )
        raise
    finally:
        display.close()
    seconds = time.monotonic() - started
    summary = run.summary() | {"seconds": round(seconds, 3)}
    if values["as_json"]:
        print_json(summary)
        return
    if ended.search == "converged":
        click.echo(
            f"converged after {ended.completed:,} rounds: the gradient's norm is "
            f"{ended.gradient_norm:.3g}"
        )
    elif ended.stopped_early and ended.search != "stalled":
        click.echo(f"stopped early: the best evaluation was after {ended.completed:,} rounds")
    click.echo(f"trained in {seconds:.1f} s: {run.path}")
    if summary["eval_loss"] is not None:
        click.echo(scores(summary["accuracy"], summary["eval_loss"]))
    click.echo(f"model_sha256 {ended.model_sha256}")
    if summary["warning"]:
        click.echo(f"warning: {summary['warning']}", err=True)


def _show_plan(plan: "Plan", execution: "Execution", values: dict[str, Any]) -> None:
    from mapreduce.rundir import block_bounds
    from mapreduce.strategies.references import merge_levels, ranges

    model = plan.create_model()
    leaves = plan.leaves(0)
    content: dict[str, Any] = {
        "rows": plan.rows,
        "rounds": plan.rounds,
        "rounds_per_epoch": plan.rounds_per_epoch,
        "batch_size": plan.batch_size,
        "slice_rows": plan.slice_rows,
        "slices_per_round": leaves,
        "map_tasks": len(ranges(leaves, execution.workers)),
        "merge_steps": len(merge_levels(leaves, execution.workers, execution.fan_in)),
        "blocks": len(block_bounds(model.size, execution.of(model).blocks)),
        "parameters": model.size,
        "plan_sha256": plan.sha256,
    }
    if values["as_json"]:
        print_json({**content, "plan": plan.to_dict()})
        return
    for name, value in content.items():
        shown = f"{value:,}" if isinstance(value, int) else value
        click.echo(f"{name.replace('_', ' '):18}{shown}")
