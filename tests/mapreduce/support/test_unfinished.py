"""The files that a user means by the name of their folder."""

import gzip
import json

import pytest

from hdfs_utils.errors import IncompleteOutputError
from mapreduce.errors import DataError
from mapreduce.support.unfinished import files_of
from programs import fails, succeed
from quick import cases

ROWS = [f"{n},{n % 7},{'no' if n % 7 > 3 else 'yes'}\n" for n in range(40)]
HEADER = "id,x,label\n"


@pytest.fixture
def folder(tmp_path):
    """A table in three files, as a job may have written it, with files that are hidden."""
    path = tmp_path / "table"
    path.mkdir()
    for number, some in enumerate((ROWS[:20], ROWS[20:21], ROWS[21:])):
        (path / f"part-0000{number}.csv").write_text(HEADER + "".join(some))
    for name in ("_SUCCESS", ".part-00000.csv.crc"):
        (path / name).touch()
    return path


def test_a_folder_means_its_files_by_name_without_hidden_ones(folder):
    whole = folder.parent / "whole.csv"
    names = [f"part-0000{number}.csv" for number in range(3)]
    assert files_of([whole, folder]) == [whole, *(folder / name for name in names)]


def test_commands_take_a_folder_as_its_files(folder, tmp_path):
    files, options = sorted(folder.glob("part-*")), ("--label", "label", "--id", "id", "--json")
    made = [
        json.loads(succeed("data", "import", *sources, tmp_path / name, *options))
        for name, sources in (("a", [folder]), ("b", files))
    ]
    assert made[0] == made[1] and made[0]["rows"] == len(ROWS)
    described = [
        succeed("data", "describe", *sources, "--label", "label", "--json")
        for sources in ([folder], files)
    ]
    assert described[0] == described[1]
    for name, sources in (("c", [folder]), ("d", files)):
        succeed("data", "split", *sources, tmp_path / name, "--id", "id", "-q")
    for part in ("train.csv", "test.csv"):
        assert (tmp_path / "c" / part).read_bytes() == (tmp_path / "d" / part).read_bytes()
    error = fails(65, "data", "split", tmp_path / "a", tmp_path / "e")
    assert f"{tmp_path / 'a'} is a folder: name the files in it" in error, "it is a dataset"


def test_folders_without_files_with_folders_and_of_unfinished_jobs(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "_SUCCESS").touch()
    with pytest.raises(DataError, match="empty is a folder without files"):
        files_of([tmp_path / "empty"])
    with pytest.raises(DataError, match=f"{tmp_path} holds another folder, empty: name the files"):
        files_of([tmp_path])
    (folder / "_temporary").mkdir()
    with pytest.raises(IncompleteOutputError, match="table holds _temporary"):
        files_of([folder])


# Without times: all workers of a session must collect the same parameters.
EMPTY = gzip.compress(b"", mtime=0)


@cases("content", b"", EMPTY, EMPTY + EMPTY)
def test_empty_parts_are_no_files_of_a_folder(content, folder):
    files = files_of([folder])
    suffix = ".csv.gz" if content else ".csv"
    for number in ("00000x", "00002x"):
        (folder / f"part-{number}{suffix}").write_bytes(content)
    assert files_of([folder]) == files
    described = [succeed("data", "describe", *paths, "--json") for paths in ([folder], files)]
    assert described[0] == described[1]
    for file in files:
        file.unlink()
    with pytest.raises(DataError, match="table is a folder of empty files"):
        files_of([folder])


@cases(
    "content",
    b"\n",
    gzip.compress(b"\n", mtime=0),
    b"\x1f\x8b",
    EMPTY[:-5],
    b"\x1f\x8b\x08" * 9,
)
def test_small_and_damaged_files_stay(content, folder):
    (folder / "part-00003.csv").write_bytes(content)
    assert files_of([folder])[-1] == folder / "part-00003.csv"


def test_a_link_to_nothing_is_no_missing_file(folder):
    (folder / "part-00003.csv").symlink_to("elsewhere.csv")
    error = fails(66, "data", "describe", folder)
    assert "part-00003.csv is a link to a path that does not exist." in error


def test_parts_that_may_be_unfinished_are_warned_of(folder, capsys):
    assert files_of([folder]) and not capsys.readouterr().err
    (folder / "_SUCCESS").unlink()
    assert len(files_of([folder])) == 3
    assert f"warning: {folder} holds parts but no _SUCCESS" in capsys.readouterr().err
