"""A request: a model, data, what is wanted of them, who computes it, and where it goes."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hdfs_utils.atomic import temporary_name
from hdfs_utils.paths import AnyPath, RemotePath
from mapreduce.data.shards import Dataset
from mapreduce.engine.executor import Executor
from mapreduce.errors import DataError
from mapreduce.executors.chain import Chain
from mapreduce.executors.here import InProcess
from mapreduce.inference.predictor import NOTHING, SLICE_ROWS, Extras
from mapreduce.models.fitted import FittedModel
from mapreduce.plan.fitting import check_fits
from mapreduce.runs.execution import Execution
from mapreduce.support import traits

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What commands and Python ask of a fitted model.

    ``data``: The folder of a dataset, or a file. Errors call it ``shown``, if that is not empty.
    ``execution``, ``device``: Who computes, and where.
    ``out``: The folder or file of predictions.
    ``reading``: How a file is read, as ``gradreduce data import`` takes it: ``id``, ``drop``,
      ``na`` and so on, None where nothing is said; and ``keep``, columns that stand beside
      predictions.
    ``extras``: What else stands there.
    ``of_logits``: Whether the features of a dataset are the model's logits.
    ``few_here``: Whether this process computes few rows, without a job.
    ``tell``, ``warn``: Called with how far it is, and with what a user should know about a file.
    """

    fitted: FittedModel
    data: AnyPath
    execution: Execution
    out: AnyPath = Path()
    device: str = "cpu"
    reading: Mapping[str, Any] = field(default_factory=dict)
    extras: Extras = NOTHING
    shown: str = ""
    few_here: bool = False
    of_logits: bool = False
    tell: Tell = lambda text: None
    warn: Tell = lambda text: None

    def of_dataset(self, folder: AnyPath, *, labelled: bool, of_logits: bool = False) -> "Request":
        """The same of a dataset, which fits the model.

        ``labelled`` data must have labels.

        Raises DataError (it does not fit).
        """
        shown, fitted = self.shown or str(self.data), self.fitted
        manifest = Dataset(folder).check_sizes()
        if not fitted.about.predicts_labels:
            # Those of the data have another meaning, and are not read.
            manifest = replace(manifest, classes=None, target=None)
        if not of_logits:
            check_fits(manifest, folder, fitted.data, shown, takes_files=True)
        if labelled and manifest.target is None:
            raise DataError(f"{shown}: expected labels to compare predictions with, found none")
        estimator = fitted.estimator(self.device)
        wanted = "number" if estimator.regression else "class"
        if manifest.target not in (None, wanted):
            raise DataError(
                f"the model predicts a {wanted}, but the labels of {shown} are of another kind"
            )
        if manifest.layout == "sparse" and not estimator.takes_sparse:
            raise DataError(
                f"{shown}: expected dense rows, since {fitted.name} takes no others, found sparse "
                f"ones"
            )
        found = replace(self, data=folder.absolute(), of_logits=of_logits).for_rows(manifest.rows)
        found.execution.check_places(fitted.path, found.data, None if labelled else self.out)
        return found

    def for_rows(self, rows: int) -> "Request":
        """The same without a job, if the rows are few."""
        if not self.few_here or rows > SLICE_ROWS or not self.fitted.about.forks_after_use:
            return self
        return replace(self, execution=replace(self.execution, executor=InProcess.name))

    def executor(self, *paths: AnyPath, tasks: int = 0, reducers: int = 0) -> Executor:
        """Who computes a program over the model, the data and other paths.

        It is this process, or jobs of so many tasks.
        """
        if self.execution.executor == InProcess.name:
            return InProcess(self.execution)
        execution = self.execution.for_paths(self.fitted.path, self.data.absolute(), *paths)
        return Chain(execution, tasks, reducers)

    @contextlib.contextmanager
    def scratch(self) -> Iterator[AnyPath]:
        """A temporary folder that tasks can open, to be made.

        It is on this machine, or beside a remote model if the tasks may run on others.
        """
        place = self.fitted.folder / "data"
        if not isinstance(place, RemotePath) or traits.of(self.execution.runner).is_here:
            with tempfile.TemporaryDirectory(prefix="gradreduce-") as folder:
                yield Path(folder, "made")
            return
        remote = temporary_name(place)
        try:
            yield remote
        finally:
            remote.rmtree()
