"""The use of a model on data, the same for commands and Python: what a request asks for."""

import contextlib
from collections.abc import Callable
from dataclasses import replace

from mapreduce.errors import UsageError
from mapreduce.inference import (
    cutting,
    files,
    groups,
    importance,
    outputs,
    raw,
    report,
)
from mapreduce.inference import predict as datasets
from mapreduce.inference.cutting import TableFile
from mapreduce.inference.flags import ReportOptions
from mapreduce.inference.metrics import Report
from mapreduce.inference.request import Request

#: A report of metrics alone.
PLAIN = ReportOptions()


def evaluate(request: Request, options: ReportOptions = PLAIN) -> Report:
    """Report on a model, on data with labels."""
    if not request.fitted.about.predicts_labels:
        raise UsageError(
            f"{request.fitted.name} has learned without labels, so that no label tells whether a "
            f"prediction is right. Use gradreduce predict, with --layer for distances or scores"
        )
    # No report has ids.
    request = replace(request, reading={**request.reading, "id": ""})
    with contextlib.ExitStack() as stack:
        # Groups and permutations need more of the rows of a slice.
        grouped, scores = None, options.by is None and not options.importance
        if options.by is not None:
            grouped = stack.enter_context(groups.of_file(request, options.by))
            drop = (*(request.reading.get("drop") or ()), *grouped.drop)
            request = replace(request, reading={**request.reading, "drop": drop})
        dataset = stack.enter_context(raw.imported(request, labelled=True, scores=scores))
        found = report.report(dataset)
        if grouped is not None:
            found = grouped.add_to(found, dataset)
        if options.importance:
            found = importance.add_importance(found, dataset, options.repeats, options.seed)
        return found


def predict(
    request: Request,
    of_file: Callable[[Request, TableFile], tuple[int, list[str]]] = files.predict,
    of_dataset: Callable[[Request], int] = datasets.predict,
) -> int:
    """Predict data into a folder of Parquet files, or into one file; returns the rows.

    ``of_file``, ``of_dataset``: Who predicts a file that is cut, and a dataset; by default jobs.
    """
    # Before anything is read, which may take long.
    outputs.is_file(request.out, request.extras.layer)
    request = replace(request, out=request.out.absolute())
    if file := cutting.cut(request):
        rows, notes = of_file(request.for_rows(file.rows), file)
        for note in notes:
            request.warn(note)
        return rows
    with raw.imported(request, labelled=False) as dataset:
        return of_dataset(dataset)
