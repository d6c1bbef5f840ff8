"""Grades submissions: each runs in a jail, and what comes out of it is judged outside.

The reference runs in a process of its own too, so that several threads may ask both. What a
submission gets is a copy of itself and of the input.
"""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from mapreduce.checking.checker import Finding
from mapreduce.errors import GradreduceError, UsageError
from mapreduce.exercises import jail
from mapreduce.exercises.answers import Answers, answers_of, named_cases, question, require_lawful
from mapreduce.exercises.exercise import FOLDER, Exercise
from mapreduce.exercises.grades import Grade, as_page, grade_of
from mapreduce.exercises.groups import Groups
from mapreduce.exercises.jail import Jail, Limits
from mapreduce.exercises.served import NONSENSE, Lost, Remote
from mapreduce.exercises.submissions import Copy, identities
from mapreduce.explaining.model import Lines, Trace
from mapreduce.explaining.tasks import Variation
from mapreduce.runners.parallel.pool import private_folder
from mapreduce.support import own

#: Runs that make a counter-example small.
_TRIES = 60

#: Files that a comment names.
_NAMED = 5

#: Seconds for the reference, which is ours, and for its end.
_FOREVER, _PATIENCE = 1e6, 3.0

#: What a Python needs of the machine.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime")

_SERVED = ("-m", "mapreduce.exercises.served")

#: A grade, the findings that it follows from, and the run that shows a mistake.
_Tested = tuple[Grade, Sequence[Finding], Trace | None]


class _Answers(Answers):
    """Tests a submission in its jail, as :class:`Answers` tests a job here."""

    def _tested(self, lines: Lines) -> Iterator[Finding]:
        for found in self._runner.laws([*self._laws], lines, _TRIES):
            if found.law.name != "runs":
                yield found


@dataclass(frozen=True)
class Graded:
    """A grade, and the student's page; None if it is the grade of before."""

    grade: Grade
    page: str | None = None


@dataclass
class Grader:
    """Grades submissions of one exercise, within a ``with``.

    ``seed`` decides the hidden inputs, ``rubric`` the points; a task has ``seconds``, a submission
    what ``limits`` gives. ``is_trusting``: There are no namespaces. ``hidden``: Folders that no
    submission may see.
    """

    exercise: Exercise
    seed: int
    rubric: Mapping[str, float]
    limits: Limits
    seconds: float
    is_trusting: bool
    hidden: Sequence[Path]

    def __enter__(self) -> "Grader":
        self._own = threading.local()
        self._groups = None if self.is_trusting else Groups()
        self._started: list[subprocess.Popen[bytes]] = []
        self._starting, self._is_over = threading.Lock(), False
        self._place = private_folder(Path(tempfile.gettempdir()))
        self._secrets = identities(self.exercise.folder.iterdir())
        try:
            self._prepare()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def _prepare(self) -> None:
        """Find what is right, and whether submissions can be held to it."""
        if not self.is_trusting:
            with self._jail({}) as made:
                reason = jail.refusal(made)
            if reason:
                raise UsageError(
                    f"{reason}. Submissions are programs of strangers, which could read and change "
                    f"here what you can. --trust-submissions grades the submissions so, with "
                    f"limits only"
                )
        self._cases = named_cases(self.exercise, self.seed)
        solver = self._reference()
        self._expected = answers_of(solver, self._cases, self.exercise.file)
        found = solver.laws(self.exercise.laws, self._cases[0][1], 0)
        require_lawful(self.exercise.file, found)

    def __exit__(self, *error: object) -> None:
        if any(error):
            self._kill()
        for one in self._started:
            try:
                # It ends when nobody asks any more.
                one.communicate(timeout=_PATIENCE)
            except subprocess.TimeoutExpired:
                jail.stop(one)
        shutil.rmtree(self._place, ignore_errors=True)

    def grades(
        self, submissions: Mapping[str, Path], known: Mapping[str, Grade], jobs: int
    ) -> Iterator[Graded]:
        """Each submission's grade, in their order; ``known`` ones if nothing has changed."""

        def one(item: tuple[str, Path]) -> Graded:
            student, path = item
            with tempfile.TemporaryDirectory(dir=self._place) as folder:
                copied = Copy(Path(folder), self.limits.files // 2, self._secrets)
                copied.take(path)
                digest = self._digest(copied)
                if student in known and known[student].digest == digest:
                    return Graded(known[student])
                found = self._graded(student, copied)
            return replace(found, grade=replace(found.grade, digest=digest))

        pool = ThreadPoolExecutor(jobs)
        try:
            yield from pool.map(one, submissions.items())
        except BaseException:
            self._kill()
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    @property
    def counting(self) -> str:
        """Who counts the memory of a submission, in words."""
        place = self._groups and self._groups.parent
        who = f"a control group in {place}" if place else "its pages, since no group can be made"
        return f"the memory of a submission is counted by {who}"

    def _digest(self, copied: Copy) -> str:
        """The digest of all that a grade follows from."""
        limits = sorted(self.rubric.items()), self.limits, self.seconds, self.is_trusting
        digest = hashlib.sha256(repr((version("gradreduce"), self.seed, limits)).encode())
        digest.update(repr((copied.problem, copied.left_out)).encode())
        for file in (self.exercise.file, *self.exercise.shown, *copied.files):
            content = file.read_bytes()
            digest.update(f"{file.name!r} {len(content)}\n".encode())
            digest.update(content)
        return digest.hexdigest()

    def _graded(self, student: str, copied: Copy) -> Graded:
        try:
            return self._shown(copied, self._tested(student, copied))
        except Lost as error:
            comment = f"It was stopped, since {error}."
        except OSError as error:
            comment = f"It cannot be read: {error.strerror or error}."
        except GradreduceError as error:
            comment = f"It is no job that runs: {_first_line(error)}"
        except Exception as error:
            # Of the right form, and yet no run that there can be.
            what = f"{type(error).__name__}: {_first_line(error)}"
            comment = f"It was stopped, since {NONSENSE}: {what}"
        return self._shown(copied, (Grade(student, comment=comment), (), None))

    def _shown(self, copied: Copy, tested: _Tested) -> Graded:
        grade, findings, trace = tested
        if names := copied.left_out:
            more = f", and {len(names) - _NAMED} more" * (len(names) > _NAMED)
            comment = f"{grade.comment.rstrip('.')}. Not read: {', '.join(names[:_NAMED])}{more}."
            grade = replace(grade, comment=comment)
        text, most = f"Exercise {self.exercise.id}: {self.exercise.text}", sum(self.rubric.values())
        return Graded(grade, as_page(grade, text, most, findings, trace))

    def _tested(self, student: str, copied: Copy) -> _Tested:
        if copied.problem:
            return Grade(student, comment=f"It is too large: {copied.problem}."), (), None
        jobs = [file for file in copied.files if file.suffix == ".py"]
        if len(jobs) != 1:
            found = ", ".join(file.name for file in jobs) or "none"
            return Grade(student, comment=f"Expected one Python file, found {found}."), (), None
        if not jobs[0].read_bytes().strip():
            return Grade(student, comment=f"Its file {jobs[0].name} is empty."), (), None
        # A file of another name would hide a module, or be no name of a job.
        name = jobs[0].stem
        is_plain = name.isidentifier() and name != "__main__" and not find_spec(name)
        job = jobs[0].name if is_plain else "job.py"
        others = {file.name: file for file in copied.files if file not in jobs}
        with self._submission(job, {job: jobs[0], **others}) as remote:
            return self._judged(student, remote)

    def _judged(self, student: str, remote: Remote) -> _Tested:
        asked = question(self.exercise, self._cases, self._expected, self._reference())
        options = {"shrink": _TRIES, "total_limit": self.limits.seconds, "laws": ()}
        answers = _Answers(remote, asked, (), options)
        findings = [*answers.findings()]
        trace = None
        if answers.smallest:
            with contextlib.suppress(GradreduceError):
                trace = remote.trace(Variation(maps=2, reducers=2), answers.smallest)
                for source, lines in zip(trace.sources, answers.smallest, strict=False):
                    source.lines, source.size = len(lines), sum(line.size for line in lines)
        return grade_of(student, findings, self.rubric), findings, trace

    # Processes

    def _kill(self) -> None:
        """Kill all processes, for which threads wait, and start no more."""
        with self._starting:
            self._is_over = True
            for one in self._started:
                if one.poll() is None:
                    os.killpg(one.pid, signal.SIGKILL)

    def _start(self, start: Callable[[], "subprocess.Popen[bytes]"]) -> "subprocess.Popen[bytes]":
        with self._starting:
            if self._is_over:
                raise Lost("the grading has ended")
            self._started.append(start())
            return self._started[-1]

    def _reference(self) -> Remote:
        """The reference, in a process of this thread's, which ends when nobody asks any more."""
        found: Remote | None = getattr(self._own, "reference", None)
        if found is None:
            environment = {**os.environ, "PYTHONPATH": own.HOME, "TMPDIR": str(self._place)}
            command, pipe = [sys.executable, *_SERVED, str(os.getpid())], subprocess.PIPE
            started = self._start(
                lambda: subprocess.Popen(
                    command, stdin=pipe, stdout=pipe, env=environment, start_new_session=True
                )
            )
            found = self._own.reference = Remote(started, _FOREVER)
            shown = [str(path) for path in self.exercise.shown]
            found.open(str(self.exercise.file), self.exercise.arguments, shown, self.seconds)
        return found

    @contextlib.contextmanager
    def _submission(self, job: str, given: dict[str, Path]) -> Iterator[Remote]:
        """A submission in its jail, with the input in folders of their own."""
        inputs = {f"input/{n}/{path.name}": path for n, path in enumerate(self.exercise.shown)}
        words, files = [], {**given, **inputs}
        for n, word in enumerate(self.exercise.arguments):
            if Path(word).is_file():
                files[f"arguments/{n}/{Path(word).name}"] = Path(word)
                word = f"arguments/{n}/{Path(word).name}"
            words.append(word)
        with self._jail(files) as made:
            program = [sys.executable, *_SERVED]
            started = self._start(lambda: jail.start(made, program, subprocess.DEVNULL))
            try:
                remote = Remote(started, self.limits.seconds)
                remote.open(job, words, [*inputs], self.seconds)
                yield remote
            finally:
                jail.stop(started)
                with self._starting:
                    self._started.remove(started)

    @contextlib.contextmanager
    def _jail(self, given: dict[str, Path]) -> Iterator[Jail]:
        with (
            self._groups.group(self.limits.memory)
            if self._groups
            else contextlib.nullcontext("") as group,
            tempfile.TemporaryDirectory(dir=self._place) as place,
        ):
            if self.is_trusting:
                for name, path in given.items():
                    Path(place, name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, Path(place, name))
                Path(place, "tmp").mkdir(exist_ok=True)
            packages = [str(Path(own.HOME, name)) for name in own.NAMES]
            visible = [*_SYSTEM, sys.prefix, sys.base_prefix, *packages, sys.pycache_prefix or ""]
            yield Jail(
                place,
                [path for path in dict.fromkeys(filter(None, visible)) if Path(path).exists()],
                [str(path.resolve()) for path in (FOLDER, self.exercise.folder, *self.hidden)],
                {name: str(path) for name, path in given.items()},
                self.limits,
                self.is_trusting,
                group,
            )


def _first_line(error: Exception) -> str:
    """An error of a job in a line, without its traceback."""
    return (str(error).strip() or type(error).__name__).partition("\n")[0][:300]
