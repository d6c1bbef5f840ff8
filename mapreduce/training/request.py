"""A request: data, a model, how it is trained, who computes it, and where the run goes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hdfs_utils.errors import KerberosError
from hdfs_utils.paths import AnyPath
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError, MissingInputError, UsageError
from mapreduce.job import Job
from mapreduce.models import FITS
from mapreduce.plan import flags as plan_flags
from mapreduce.plan.plan import Plan
from mapreduce.plan.settings import Settings
from mapreduce.runs import flags
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events, RunEnded
from mapreduce.runs.execution import Execution
from mapreduce.runs.fits import FitConfig, FitDir
from mapreduce.training import creating, driver, fitting

#: The same call must work once the data, the user's own code or the ticket are repaired. A task's
#: error has its cause's code.
_REPAIRED = {kind.exit_code for kind in (DataError, MissingInputError, UsageError, KerberosError)}


@dataclass(frozen=True)
class TrainingRequest:
    """What commands, scripts and Python ask of a training, or of a fit without gradients.

    ``run``: Folder of the new run. ``data``, ``evaluation``: Folders of datasets, once data of
    other forms are imported. ``keep``: Checkpoints to keep.
    """

    run: AnyPath
    data: AnyPath
    evaluation: AnyPath | None
    settings: Settings
    execution: Execution
    keep: int
    numeric_profile: str

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "TrainingRequest":
        """The request of a user, whose code is trusted.

        ``values`` holds all options of a plan and of its execution, and the paths ``run``, ``data``
        and ``evaluation``, which may be None. ``stays`` is as for
        :func:`mapreduce.runs.flags.execution`.

        Raises UsageError (an option is wrong).
        """
        flags.trust_executor(values)
        settings = plan_flags.settings(values)
        is_fit = FITS.fits(settings.model)
        if not is_fit:
            settings.trust_members()
        elif settings.seed and not FITS.parse(settings.model).has_seed:
            raise UsageError(f"--seed: {settings.model} draws nothing. Leave it out")
        how = flags.execution(values, alone=is_fit)
        names = "run", "data", "evaluation", "keep", "numeric_profile"
        return cls(**{name: values[name] for name in names}, settings=settings, execution=how)

    @property
    def is_fit(self) -> bool:
        """Whether the model is fitted without gradients."""
        return FITS.fits(self.settings.model)

    def plan(self) -> Plan:
        """The plan of the training; errors are those of :func:`mapreduce.plan.settings.make`."""
        return creating.plan(self.settings, self.data, self.evaluation)

    def start(
        self, events: Events, job_class: type[Job] | None = None
    ) -> tuple[RunDir | FitDir, RunEnded]:
        """Make the run and train to its end; see :mod:`mapreduce.training.driver` for errors.

        The steps of ``job_class`` are the rounds; by default it is the toolkit's own.
        """
        if self.is_fit and job_class is None:
            return self._fit(events)
        places = self.run, self.settings, self.data, self.evaluation
        run = creating.create(*places, self.numeric_profile)
        try:
            return run, driver.train(run, self.execution, self.keep, events, job_class=job_class)
        except Exception as error:
            if getattr(error, "exit_code", None) in _REPAIRED:
                run.remove_if_unused()
            raise

    def _fit(self, events: Events) -> tuple[FitDir, RunEnded]:
        data, run = Dataset(self.data.absolute()), FitDir(self.run.absolute())
        sha256, settings = data.check_sizes().sha256, self.settings
        place = str(data.folder)
        run.create(FitConfig(settings.model, place, sha256, settings.seed, self.numeric_profile))
        try:
            return run, fitting.fit(run, self.execution, events)
        except Exception as error:
            # No other rows or options can follow: it would fail again.
            if getattr(error, "exit_code", None) in (DataError.exit_code, UsageError.exit_code):
                run.remove()
            raise
