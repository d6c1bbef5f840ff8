"""Where predictions go: a folder of parts, or a file that these become."""

import contextlib
import glob
import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from hdfs_utils.atomic import storage_errors
from hdfs_utils.errors import ConflictError, StorageError
from hdfs_utils.folders import first_special, remove_ended
from hdfs_utils.paths import AnyPath, RemotePath, ordered
from hdfs_utils.publish import PREDICTION, SUCCESS, new_file, put_if_absent, replace
from mapreduce.data import ipc
from mapreduce.data.readers.parquet import parquet_file
from mapreduce.errors import DataError, OutputError, UsageError
from mapreduce.inference.predictor import Extras, plain
from mapreduce.inference.request import Request, Tell
from mapreduce.runs import lease
from mapreduce.support.commands import command

#: There are not more parts, however large the data are.
MOST_PARTS = 256
#: What a swarm works on in a folder, and by which programs, while it is at work.
SWARM = "_swarm.json"
#: How the names of leases of parts begin.
LEASE = ".lease-"
#: How the names of pieces begin: what is predicted of shards, until it stands in the parts.
PIECE = ".piece-"
#: In the metadata of a part: digests of what it is made from, and of its own bytes. The second is
#: that of the bytes with zeros in its place, and is missing in parts of earlier versions.
_MADE_FROM = b"gradreduce.made_from"
_ZEROS = b"0" * 64


def parquet_writer(sink: Any, schema: Any) -> Any:
    """A writer of predictions as Parquet, to a file.

    Numbers that hardly repeat are written as they are: a dictionary of them takes five times the
    time, and more space.
    """
    repeating = [
        field.name
        for field in schema
        if field.name != "row"
        and not (pa.types.is_nested(field.type) or pa.types.is_floating(field.type))
    ]
    options = {"compression": "zstd", "write_page_checksum": True}
    return pq.ParquetWriter(sink, schema, use_dictionary=repeating or False, **options)


#: How a file is written whose name ends so.
_WRITERS: dict[str, Callable[[Any, Any], Any]] = {
    ".parquet": parquet_writer,
    ".arrow": pa.ipc.new_file,
    ".feather": pa.ipc.new_file,
    ".csv": csv.CSVWriter,
}
#: What the name of a folder does not end in, but that of a file which nobody writes.
_OTHERS = (".gz", ".tsv", ".txt", ".json", ".jsonl", ".ipc", ".orc", ".pq", ".xls", ".xlsx")
#: Columns of predictions beside the ids, which cannot have one of these names.
COLUMNS = ("row", "label", "prediction", "probability", "probabilities")


def columns(extras: Extras) -> tuple[str, ...]:
    """The names that a column of the data cannot keep."""
    return (*COLUMNS, *extras.columns, *(["features"] if extras.layer else []))


def id_name(name: str | None, extras: Extras) -> str:
    """What the column of ids is called: as that of the data, if no other is."""
    return "id" if name is None or name in columns(extras) else name


def made_from(request: Request, sha256: str) -> dict[str, str]:
    """What predictions are made from: the model, and data of this digest."""
    found = {"model_sha256": request.fitted.model_sha256, "data_sha256": sha256}
    device, extras = request.device, request.extras
    more = {"device": "" if device == "cpu" else device, "layer": extras.layer}
    more["probability_of"] = json.dumps(extras.classes) if extras.classes else ""
    return found | {name: value for name, value in more.items() if value}


def part_path(out: AnyPath, number: int) -> AnyPath:
    """The file of a part."""
    return out / f"part-{number:05d}.parquet"


def piece_path(out: AnyPath, number: int) -> AnyPath:
    """The file of a piece."""
    return out / f"{PIECE}{number:05d}"


def _work(out: AnyPath) -> Iterator[AnyPath]:
    """What may be gone on with: parts and pieces."""
    for names in ("part-*", f"{PIECE}*"):
        yield from out.glob(names)


def has_work(out: AnyPath) -> bool:
    """Whether there is something to go on with."""
    return any(_work(out))


def is_file(out: AnyPath, layer: str = "") -> bool:
    """Whether predictions become one file, as its name says; there must be none of the name.

    Raises UsageError (a text file cannot hold the outputs of a ``layer``).
    """
    suffix = PurePosixPath(str(out)).suffix
    if str(out) == "-":
        raise UsageError(
            f"-: expected a name that ends in {', '.join(_WRITERS)}, or that of a folder, since a "
            f"file appears when it is whole. Name one, then print it: cat predictions.csv"
        )
    if suffix.lower() in _OTHERS or (suffix not in _WRITERS and suffix.lower() in _WRITERS):
        raise UsageError(
            f"{out}: expected a name that ends in {', '.join(_WRITERS)}, or that of a folder"
        )
    if suffix not in _WRITERS:
        return False
    if layer and suffix == ".csv":
        raise UsageError(
            f"--layer {layer}: {out} would be a text file, which has no columns of lists. Name a "
            f"file that ends in .parquet, or a folder"
        )
    with storage_errors("create", out):
        if out.exists() or (isinstance(out, Path) and out.is_symlink()):
            raise _exists(out)
        if isinstance(out, Path):
            # Nobody has asked for its folder.
            out.parent.stat()
    return True


def _exists(out: AnyPath) -> OutputError:
    return OutputError(f"{out} exists already. Name another file")


@contextlib.contextmanager
def open_output(
    out: AnyPath, made_from: dict[str, str], count: int, tell: Tell = lambda text: None
) -> Iterator[AnyPath | None]:
    """The folder to write so many parts of predictions to, which are whole at the end of the block.

    It is ``out``, or a hidden folder beside the file ``out``, which is removed when the file is
    there. What was written by an attempt that was stopped is still in it, if it was made from the
    same digests of model and data. None if the predictions are whole already. ``tell`` is called
    with what else waits for the same file.
    """
    if is_file(out):
        digest = hashlib.sha256(json.dumps([out.name, made_from]).encode()).hexdigest()
        # A file may have a longer name than a folder of this name could.
        folder = out.with_name(f".{out.name[:40]}.{digest[:16]}.parts")
        _tell_of_others(out, folder, tell)
        try:
            with _in_use(folder):
                with _claim(folder, made_from):
                    yield folder
                    with new_file(out) as temporary, storage_errors("write", out):
                        parts = [part_path(folder, number) for number in range(count)]
                        _join(parts, temporary, PurePosixPath(str(out)).suffix)
                _remove(folder)
        except (FileExistsError, StorageError):
            # Another command was quicker, and has removed what both wrote.
            if out.exists():
                raise _exists(out) from None
            raise
        return
    with _claim(out, made_from):
        is_whole = (out / SUCCESS).exists()
        yield None if is_whole else out
        if is_whole:
            tidy(out)
        else:
            finish(out, made_from)


def _tell_of_others(out: AnyPath, folder: AnyPath, tell: Tell) -> None:
    """Name the hidden folders of other commands for a file, and how to remove them."""
    for other in ordered(out.parent.glob(f".{glob.escape(out.name[:40])}.{'?' * 16}.parts")):
        holder = lease.holder(other)
        if other == folder or (holder and lease.is_visible(holder) and lease.is_alive(holder)):
            continue
        ours = {PREDICTION, *(path.name for path in (*_work(other), *lease.files(other)))}
        advice = ""
        if isinstance(other, Path) and ours.issuperset(path.name for path in other.iterdir()):
            advice = f". If no command is at work there, remove it: {command('rm', '-r', other)}"
        tell(
            f"{other} holds parts that another command has left, for {out.name} too, of another "
            f"model or file, or with other options; they are not used{advice}"
        )


@contextlib.contextmanager
def _in_use(folder: AnyPath) -> Iterator[None]:
    """Keep others on this machine from a hidden folder, and take it over from other machines.

    Nothing is lost if somebody is at work there: a part is published whole, and once.
    """
    if isinstance(folder, RemotePath):
        yield
        return
    if folder.is_symlink():
        raise OutputError(f"{folder} is a symbolic link: expected nothing there, or a folder")
    with storage_errors("create", folder):
        folder.mkdir(exist_ok=True)
    with lease.hold(folder, take_over=True):
        try:
            yield
        finally:
            if not has_work(folder):
                _remove(folder)


@contextlib.contextmanager
def _claim(out: AnyPath, made_from: dict[str, str]) -> Iterator[None]:
    """Write what predictions are made from into a folder, unless an error leaves it without any."""
    is_new = not out.exists()
    claim(out, made_from)
    try:
        yield
    except BaseException:
        with storage_errors("tidy up", out):
            if not has_work(out):
                (out / PREDICTION).unlink(missing_ok=True)
                if is_new:
                    _remove(out)
        raise


def _remove(folder: AnyPath) -> None:
    """Remove a folder of parts, but for what somebody else has put there."""
    if isinstance(folder, RemotePath):
        # Its name is nobody's but ours.
        with contextlib.suppress(FileNotFoundError, StorageError):
            folder.rmtree()
        return
    with contextlib.suppress(FileNotFoundError), storage_errors("remove", folder):
        ours = [folder / PREDICTION, *_work(folder), *folder.glob(".part-*.tmp")]
        ours += folder.glob(f".{PIECE}*.tmp")
        for path in [*ours, *lease.files(folder)]:
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()


def _join(parts: Sequence[AnyPath], path: Path, suffix: str) -> None:
    """Write the tables of parts into one file, as the suffix of its name says."""
    writer: Any = None
    with contextlib.ExitStack() as stack:
        for table in _tables(parts):
            table = flat(table) if suffix == ".csv" else table
            if writer is None:
                sink = stack.enter_context(ipc.output_file(path))
                writer = stack.enter_context(_WRITERS[suffix](sink, table.schema))
            writer.write_table(table)


def _tables(parts: Sequence[AnyPath]) -> Iterator[Any]:
    """A table of each row group."""
    for part in parts:
        with parquet_file(part) as file:
            for group in range(file.num_row_groups):
                yield plain(file.read_row_group(group))


def flat(table: Any) -> Any:
    """A table without lists, for a text file."""
    names = [name for name in table.column_names if name != "probabilities"]
    return table.select(names)


def make_folder(out: AnyPath) -> None:
    """Make the folder of predictions; an OutputError if it has anything else in it."""
    if out.exists():
        # Listed once: others may begin at the same moment.
        names = {path.name for path in out.iterdir()} if out.is_dir() else {""}
        ours = {SWARM, *(path.name for path in lease.files(out))}
        others = (name for name in names - ours if not name.endswith(".tmp") or name[0] != ".")
        if PREDICTION not in names and any(not name.startswith(LEASE) for name in others):
            raise OutputError(
                f"{out} exists, and does not contain predictions. Choose another folder"
            )
    found = first_special(out) if isinstance(out, Path) else None
    if found is not None:
        raise OutputError(
            f"{found[0]} is {found[1]}: expected files only, since predictions are written there. "
            f"Name another folder"
        )
    with storage_errors("create", out):
        out.mkdir(parents=True, exist_ok=True)


def claim(out: AnyPath, made_from: dict[str, str], *, for_swarm: bool = False) -> None:
    """Write into the folder what its predictions are made from, or find the same there."""
    note = out / PREDICTION
    make_folder(out)
    try:
        put_if_absent(note, _content(made_from), sync=True)
    except ConflictError:
        if not has_work(out) and (for_swarm or not (out / SWARM).exists()):
            # Of a command that was killed before it had written anything.
            replace(note, _content(made_from))
            return
        raise OutputError(
            f"{out} contains predictions of another model or of other data, or with the outputs "
            f"of another layer or of none, or with other options, or made on another device or by "
            f"another version. Choose another folder"
        ) from None


def finish(out: AnyPath, made_from: dict[str, str]) -> None:
    """Say that all parts are there, and remove what those have left that wrote them.

    Raises OutputError (another command has begun other predictions there).
    """
    try:
        # It may be gone: one that had written nothing has tidied up.
        put_if_absent(out / PREDICTION, _content(made_from), sync=True)
    except ConflictError:
        raise OutputError(
            f"{out}: another command has written predictions of another model or of other data "
            f"there at the same time. Remove the folder, then run one of them again"
        ) from None
    put_if_absent(out / SUCCESS, b"", sync=True)
    tidy(out)


def tidy(out: AnyPath) -> None:
    """Remove what those have left that wrote parts which are all there."""
    remove_ended(out)
    left = [f"{LEASE}*", f"{PIECE}*"]
    if isinstance(out, RemotePath):
        # What a writer that was killed had not renamed. Nobody waits for that of another.
        left += [".part-*.tmp", f".{PIECE}*.tmp"]
    for names in (SWARM, *left):
        for path in out.glob(names):
            path.unlink(missing_ok=True)


def digest_of(made_from: dict[str, str]) -> str:
    """A digest of what predictions are made from."""
    return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()


def _content(made_from: dict[str, str]) -> bytes:
    return json.dumps(made_from, indent=1).encode()


def part_metadata(content: str) -> dict[bytes, bytes]:
    """What the metadata of a part say before :func:`seal`: the digest of what it is made from."""
    return {_MADE_FROM: content.encode() + b" " + _ZEROS}


def seal(file: BinaryIO) -> None:
    """Write the digest of a part's bytes into its metadata; it is open for reading and writing."""
    digest, place = _sealed(file, _ZEROS)
    file.seek(place)
    file.write(digest)


def _sealed(file: BinaryIO, seal: bytes) -> tuple[bytes, int]:
    """The digest of a part's bytes, those of its ``seal`` as zeros, and where the seal stands."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 8, 0))
    start = max(size - 8 - int.from_bytes(file.read(4), "little"), 0)
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(min(start - file.tell(), 1 << 20)):
        digest.update(piece)
    footer = file.read()
    digest.update(footer.replace(seal, _ZEROS))
    return digest.hexdigest().encode(), start + footer.find(seal)


def read_footer(path: AnyPath, content: str) -> Any:
    """The metadata of a part, which is whole.

    Raises DataError (it is damaged, or made from something else than ``content`` says).
    """
    try:
        with parquet_file(path) as file:
            found: Any = file.metadata
            mark = (found.metadata or {}).get(_MADE_FROM, b"")
            if is_whole := mark == content.encode():
                # An earlier version's; the pages have checksums.
                deque(file.iter_batches(), maxlen=0)
    except DataError as error:
        raise DataError(f"{path} is damaged. {_REMOVE} ({error})") from error
    made_from, _, seal = mark.partition(b" ")
    with storage_errors("read", path), path.open("rb") as raw:
        if not is_whole and _sealed(raw, seal)[0] != seal:
            raise DataError(f"{path} is damaged: its bytes have another digest. {_REMOVE}")
    check_made_from(path, made_from.decode(), content)
    return found


_REMOVE = "Remove it, then run the command again"


def check_made_from(path: AnyPath, found: str, content: str) -> None:
    """Raise a DataError if a file is made from something else than it should be."""
    if found != content:
        raise DataError(
            f"{path} holds predictions of another model or of other data: another command has "
            f"written there at the same time. Remove the folder, then run one of them again"
        )
