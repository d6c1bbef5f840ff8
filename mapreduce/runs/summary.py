"""A run in a line, from its result and its events."""

from collections.abc import Callable
from typing import Any

from hdfs_utils.paths import AnyPath
from mapreduce.plan.plan import Plan
from mapreduce.runs import events, lease, outcome


def summarise(
    path: AnyPath,
    plan: Plan,
    result: events.RunEnded | None,
    warn: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """The model, state, rounds, losses, digest and the like of a run in ``path``."""
    recorded = events.read(path / "events.jsonl", warn)

    def by_round(event: str) -> dict[int, dict[str, Any]]:
        return {one["completed"]: one for one in recorded if one["event"] == event}

    state = "ended"
    if result is None:
        state = "running" if lease.is_held(path) else "stopped"
    rounds, evaluations = by_round("RoundCompleted"), by_round("Evaluated")
    checkpoints = by_round("CheckpointSaved")
    last = rounds.get(max(rounds, default=0), {})
    exchanged = by_round("Exchanged").get(last.get("completed", 0), {})
    saved = vars(result) if result else checkpoints.get(max(checkpoints, default=0), {})
    evaluation = evaluations.get(result.completed if result else max(evaluations, default=0), {})
    end = result.completed if result else plan.rounds
    losses = {
        at: (one.get("weight", one["rows"]), one["loss"]) for at, one in rounds.items() if at <= end
    }
    warnings = outcome.warnings(plan, result, losses, recorded)
    won = outcome.matches_won(recorded, end if result else last.get("completed", 0))
    return {
        "run": str(path),
        "state": state,
        "model": plan.model,
        "completed": last.get("completed", 0),
        "rounds": plan.rounds,
        "loss": last.get("loss"),
        "pass_loss": outcome.pass_loss(plan, losses),
        "model_sha256": saved.get("model_sha256"),
        "model_rounds": saved.get("completed"),
        "stopped_early": bool(result and result.stopped_early),
        "accuracy": evaluation.get("accuracy"),
        "eval_loss": evaluation.get("loss"),
        "search": result.search if result else None,
        "gradient_norm": result.gradient_norm if result else None,
        **{f"bytes_{name}": exchanged.get(name) for name in events.BYTES},
        "warning": warnings[0] if warnings else None,
        "warnings": warnings,
        "hardly_trained": outcome.hardly_trained(result, losses),
        **({} if won is None else {"matches_won": won}),
    }
