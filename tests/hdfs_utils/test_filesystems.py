"""One suite for all filesystems: what publishing relies upon holds in each of them."""

import os
import secrets
import socket
import threading
import time
from urllib.parse import unquote

import hdfs_native
import pytest

import programs
from hdfs_utils import filesystem, native
from hdfs_utils.errors import AddressError, ConflictError, IncompleteOutputError, StorageError
from hdfs_utils.folders import is_published, publish_folder, remove_folder, remove_leftovers
from hdfs_utils.paths import RemotePath, hadoop_pattern, named_by, ordered, path_of, size_of
from hdfs_utils.publish import PREDICTION, SUCCESS, check_parts, create, put_if_absent, replace
from quick import cases, first_of

KINDS = (
    "local",
    "s3",
    pytest.param("hdfs", marks=pytest.mark.cluster),
    pytest.param("webhdfs", marks=pytest.mark.cluster),
)


@pytest.fixture(params=KINDS)
def folder(request, tmp_path):
    """A new folder in each of the filesystems."""
    if request.param == "local":
        yield tmp_path / "folder with space"
    elif request.param == "s3":
        yield path_of(f"{request.getfixturevalue('s3')}/{secrets.token_hex(4)}/folder with space")
    else:
        cluster = request.getfixturevalue("cluster")
        web = cluster.namenode_url.replace("http://", "webhdfs://")
        root = cluster.hdfs_uri if request.param == "hdfs" else web
        path = path_of(f"{root}/tmp/{secrets.token_hex(4)}/folder with space")
        yield path
        path.parent.rmtree()


@pytest.fixture
def place(folder):
    folder.mkdir(parents=True)
    return folder


def names(folder):
    return [path.name for path in ordered(folder.iterdir())]


def test_put_if_absent(place):
    content = os.urandom(100_000)
    assert put_if_absent(place / "file", content[:3], content[3:], sync=True)
    assert (place / "file").read_bytes() == content
    assert not put_if_absent(place / "file", content)
    for other in (content[1:], content[:-1], content + b"x", content[:-1] + b"x", b""):
        with pytest.raises(ConflictError, match="exists with other content"):
            put_if_absent(place / "file", other)
    assert (place / "file").read_bytes() == content
    assert put_if_absent(place / "empty", b"", sync=True)
    assert not put_if_absent(place / "empty", b"")
    assert (place / "empty").read_bytes() == b""
    assert (place / "empty").is_file()
    assert names(place) == ["empty", "file"]


@pytest.mark.cluster
def test_hdfs_native_is_given_bytes(cluster, monkeypatch):
    # Any other buffer it takes element by element, some forty times as slow.
    given = []

    def write(self, buffer):
        given.append(type(buffer))
        return self.inner.write(buffer)

    monkeypatch.setattr(hdfs_native.FileWriter, "write", write)
    path = path_of(f"{cluster.hdfs_uri}/tmp/{secrets.token_hex(4)}")
    content = os.urandom(100_000)
    path.write_bytes(memoryview(content)[:10], content[10:])
    assert given and set(given) == {bytes}
    assert path.read_bytes() == content


def test_create_refuses_a_name_that_is_taken(place):
    create(place / "file", b"first")
    with pytest.raises(FileExistsError):
        create(place / "file", b"first")
    assert names(place) == ["file"]


def test_replace(place):
    replace(place / "file", b"first")
    replace(place / "file", b"second, which is longer")
    replace(place / "file", b"3rd")
    assert (place / "file").read_bytes() == b"3rd"
    assert names(place) == ["file"]


def test_folders_are_published_whole(place):
    files = {"a": b"1" * 1000, "marker": b"m", "z": lambda: b"made late"}
    publish_folder(place / "new" / "one", files, "marker")
    one = place / "new" / "one"
    assert names(one) == ["a", "marker", "z"]
    assert (one / "z").read_bytes() == b"made late"
    assert is_published(one, "marker")
    with pytest.raises(FileExistsError):
        publish_folder(one, {"marker": b"other"}, "marker")
    assert names(one.parent) == ["one"]
    remove_folder(one, "marker")
    assert not one.exists()
    assert not is_published(one, "marker")


def test_a_folder_that_fails_is_not_seen(place):
    def fail():
        raise StorageError("the source is gone")

    with pytest.raises(StorageError, match="the source is gone"):
        publish_folder(place / "one", {"a": b"1", "b": fail, "marker": b"m"}, "marker")
    assert not is_published(place / "one", "marker")
    publish_folder(place / "one", {"a": b"2", "marker": b"m"}, "marker")
    assert (place / "one" / "a").read_bytes() == b"2"


def test_leftovers(place):
    put_if_absent(place / ".file.12.abcd.tmp", b"half")
    (place / ".folder.12.abcd.tmp").mkdir()
    put_if_absent(place / ".folder.12.abcd.tmp" / "a", b"half")
    put_if_absent(place / "file", b"whole")
    remove_leftovers(place)
    assert names(place) == ["file"]


def test_looking(place):
    for name in ("b.block", "a.block", "c.txt"):
        put_if_absent(place / name, b"x")
    publish_folder(place / "sub", {"d.block": b"y"}, "d.block")
    assert [path.name for path in ordered(place.glob("*.block"))] == ["a.block", "b.block"]
    deep = [path.name for path in ordered(place.rglob("*.block"))]
    assert deep == ["a.block", "b.block", "d.block"]
    assert names(place) == ["a.block", "b.block", "c.txt", "sub"]
    assert (place / "sub").is_dir()
    assert not (place / "sub").is_file()
    assert (place / "a.block").is_file()
    assert not (place / "none").exists()
    assert list((place / "none").glob("*")) == []
    path = place / "sub" / "d.block"
    assert (path.name, path.stem) == ("d.block", "d")
    assert path.parent == place / "sub"
    assert path.with_name("e").parent == path.parent
    assert path_of(str(path)) == path


def test_reading_what_is_not_there(place):
    with pytest.raises(FileNotFoundError):
        (place / "none").read_bytes()
    (place / "none").unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        (place / "none").unlink()


def test_ranges(place):
    if not isinstance(place, RemotePath):
        pytest.skip("files of this machine are memory-mapped")
    content = os.urandom(70_000)
    put_if_absent(place / "file", content)
    assert (place / "file").size() == len(content)
    assert (place / "file").read_range(65_000, 3_000) == content[65_000:68_000]
    assert (place / "file").read_range(69_990, 100) == content[69_990:]
    with pytest.raises(FileNotFoundError):
        (place / "none").size()
    with pytest.raises(FileNotFoundError):
        place.size()


def test_files_of_python(place):
    content = os.urandom(3_000_000)
    put_if_absent(place / "file", content)
    assert size_of(place / "file") == len(content)
    with (place / "file").open("rb") as file:
        assert file.peek(2)[:2] == content[:2]
        assert file.read(2_000_000) == content[:2_000_000]
        assert file.seek(-5, 2) == len(content) - 5
        assert file.read() == content[-5:]
        file.seek(7)
        assert (file.tell(), file.read(3)) == (7, content[7:10])
    with pytest.raises(FileNotFoundError):
        (place / "none").open("rb")


def test_wildcards_of_uris(place):
    for name in ("a.csv", "b.csv", "c[1].csv"):
        put_if_absent(place / name, b"x")
    is_remote = isinstance(place, RemotePath)
    for pattern, found in (
        ("[ab].csv", ["a.csv", "b.csv"]),
        ("c[1].csv", ["c[1].csv"]),
        ("n*.csv", ["n*.csv"]),
    ):
        expected = found if is_remote else [pattern]
        assert named_by(place / pattern) == [place / name for name in expected]


#: Names that HDFS allows, with signs that mean something in a URL, a pattern, a list or a shell.
NAMES = (
    *("log", "log#1", "a;b", "q?x", "p%r", "p%20r", "a b", " first", "last ", "[b]c", "{x,y}"),
    *("a,b", "s*r", "größe", "a+b", "a&b", "it's", '"q"', "a=b", "a@b", "~t"),
    *("$x", "${y}", "`x`", "<>|^!()", "back\\slash", "%23", "..."),
)


def test_names_are_taken_as_they_are(place):
    known = list(NAMES)
    if str(place).startswith("s3"):
        # Each look is a request, which moto takes long to answer.
        known = known[:12:3]
    elif not str(place).startswith("webhdfs"):
        known.append("gro\u0308sse")
    for name in known:
        publish_folder(place / name, {name: name.encode(), "mark": b""}, "mark")
    assert sorted(names(place)) == sorted(known)
    for name in known:
        file = path_of(str(place / name / name))
        assert file.read_bytes() == name.encode()
        assert size_of(file) == len(name.encode())
        assert named_by(file) == [file]
        if isinstance(file, RemotePath):
            assert named_by(file.with_name("m*k")) == [file.with_name("mark")]
        file.unlink()
        assert names(file.parent) == ["mark"]


@cases(
    "name, known, pattern",
    ("a,b", "", r"a{\,}b"),
    ("[b]c{1}", "[b]c{1}", r"\[b\]c\{1\}"),
    ("[b]c{1}", "", "[b]c{1}"),
    ("d[1],2/a,*", "d[1],2", r"d\[1\]{\,}2/a{\,}*"),
    ("d/{a,b},c*", "d", r"d/{a,b}{\,}c*"),
    ("a\\b#?", "a\\b#?", r"a\\b#\?"),
    ("a\\b*", "", r"a\\b*"),
)
def test_patterns_for_hadoop(monkeypatch, name, known, pattern):
    """What is there under the very name is meant, and a comma separates nothing."""
    there = f"hdfs://there:8020/in/{known}".rstrip("/")
    monkeypatch.setattr(RemotePath, "exists", lambda path: path.uri == there)
    assert hadoop_pattern(f"hdfs://there:8020/in/{name}") == f"hdfs://there:8020/in/{pattern}"


@pytest.mark.parametrize("scheme", first_of("hdfs", "webhdfs"))
def test_paths_of_hdfs_are_no_urls(scheme):
    asked = []

    class Client:
        def get_file_info(self, path):
            asked.append(path)
            raise FileNotFoundError

        def request(self, method, url, **_):
            self.get_file_info(unquote(url.partition("/webhdfs/v1")[2]))

    if scheme == "hdfs":
        found = native.handler(scheme, "host", 1, {})
        found.fs.client = Client()
    else:
        found = filesystem._webhdfs("webhdfs://127.0.0.1", "127.0.0.1").filesystem.handler
        found.fs.session = Client()
    paths = [f"/in/{name}" for name in NAMES]
    assert {info.type.name for info in found.get_file_info(paths)} == {"NotFound"}
    assert asked == paths
    if scheme == "webhdfs":
        with pytest.raises(AddressError, match="combining sign"):
            found.get_file_info(["/in/gro\u0308sse"])


@pytest.mark.fault
@cases(
    "entries, complaint",
    (["other"], None),
    (["part-00000", "part-00001", SUCCESS], None),
    (["_x.tmp", ".part.tmp"], None),
    (["part-r-00000.gz", "_FAILED"], "parts but no _SUCCESS"),
    ([SUCCESS, "part-0", "a._COPYING_"], "a._COPYING_, which is being written"),
)
def test_output_of_jobs(place, entries, complaint):
    assert check_parts(place / "none") is None
    assert check_parts(place) is None
    for entry in entries:
        put_if_absent(place / entry, b"x")
    assert check_parts(place) == complaint
    publish_folder(place / "_temporary", {"0": b""}, "0")
    with pytest.raises(IncompleteOutputError, match="holds _temporary"):
        check_parts(place)


@pytest.mark.fault
def test_output_of_this_toolkit_without_its_mark(place):
    put_if_absent(place / "part-00000.parquet", b"x")
    assert check_parts(place) == "parts but no _SUCCESS"
    put_if_absent(place / PREDICTION, b"x")
    with pytest.raises(IncompleteOutputError, match="parts but no _SUCCESS"):
        check_parts(place)
    publish_folder(place / ".out.7.ab.tmp", {"part-00000": b""}, "part-00000")
    with pytest.raises(IncompleteOutputError, match=r"\.tmp holds parts but no _SUCCESS"):
        check_parts(place / ".out.7.ab.tmp")


def test_after_a_fork(place):
    """A connection is not taken over by a child: its threads are not there."""
    put_if_absent(place / "file", b"from the parent")
    if str(place).startswith("hdfs"):
        # hdfs-native keeps connections to data nodes for three seconds after a use, for the child
        # too, which then waits up to a minute for an answer. Trainings do not fork.
        time.sleep(3.5)
    pid = os.fork()
    if pid == 0:
        try:
            same = (place / "file").read_bytes() == b"from the parent"
            put_if_absent(place / "child", b"from the child")
        except BaseException:
            same = False
        os._exit(0 if same else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert (place / "child").read_bytes() == b"from the child"


def test_pyarrow_reads_it(place):
    put_if_absent(place / "file", b"content")
    found, path = filesystem.filesystem(str(place / "file"))
    with found.open_input_stream(path) as file:
        assert file.read() == b"content"


@cases(
    "uri, message",
    ("ftp://host/x", "ftp:// is not a filesystem known here"),
    ("webhdfs://user@host/x", "expected webhdfs://HOST:PORT/PATH"),
)
def test_addresses_that_make_no_sense(uri, message):
    with pytest.raises(AddressError, match=message):
        path_of(uri)


def test_no_cluster_is_configured(monkeypatch, tmp_path):
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(filesystem, "_running_cluster", lambda: None)
    with pytest.raises(AddressError, match="names no host, and no cluster is configured"):
        path_of("hdfs:///x")


def test_the_configured_cluster(monkeypatch, tmp_path):
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>hdfs://there:8020/</value>"
        "</property></configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    given, full = path_of("hdfs:///x/../y"), path_of("hdfs://there:8020/y")
    assert [str(given / "z"), str(given.parent)] == ["hdfs:///y/z", "hdfs:///"]
    assert [str(given.absolute()), given.uri, given] == [str(full), str(full), full]
    with pytest.raises(AddressError, match="the default filesystem is hdfs://there:8020"):
        path_of("webhdfs:///x")
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(AddressError, match="is not a configuration of Hadoop"):
        path_of("hdfs:///x")


@pytest.mark.parametrize("scheme", first_of("webhdfs", "hdfs"))
def test_nothing_answers(scheme):
    with pytest.raises(StorageError, match=f"{scheme}://127.0.0.1:1/x: .*[Cc]onnection refused"):
        path_of(f"{scheme}://127.0.0.1:1/x").exists()


def test_a_host_without_a_port_has_the_usual_one(monkeypatch):
    asked = []
    monkeypatch.setattr(filesystem, "NAME_NODE_PORT", 1)
    handler = native.handler
    monkeypatch.setattr(native, "handler", lambda *of: asked.append(of[:3]) or handler(*of))
    with pytest.raises(StorageError, match="Connection refused"):
        path_of("hdfs://127.0.0.3/x").exists()
    assert asked == [("hdfs", "127.0.0.3", None), ("hdfs", "127.0.0.3", 1)]


@cases(
    "uri, container, asked",
    ("hdfs://a.b/x", None, [("a.b", 8020)]),
    ("hdfs://a.b:9000/x", None, [("a.b", 9000)]),
    ("hdfs://a.b:9000/x", "container_1_1_01_000002", []),
    ("hdfs://services/x", None, [("nn.a", 8020), ("nn.b", 9000)]),
    ("hdfs://other/x", None, []),
    ("viewfs://a.b/x", None, []),
)
def test_a_host_is_asked_before_its_first_use(monkeypatch, tmp_path, uri, container, asked):
    """Where that is not for a task to find out, whose job has come that far."""
    values = {
        "dfs.nameservices": "other, services",
        "dfs.ha.namenodes.services": "a, b",
        "dfs.namenode.rpc-address.services.a": "nn.a:8020",
        "dfs.namenode.rpc-address.services.b": "nn.b:9000",
    }
    lines = [
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in values.items()
    ]
    text = f"<configuration>{''.join(lines)}</configuration>"
    (tmp_path / "hdfs-site.xml").write_text(text)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("CONTAINER_ID", raising=False)
    if container:
        monkeypatch.setenv("CONTAINER_ID", container)
    found = []

    def connect(place, timeout):
        assert timeout <= 4
        found.append(place)
        raise TimeoutError("timed out")

    monkeypatch.setattr("socket.create_connection", connect)
    # hdfs-native refuses a name service whose members are nowhere here.
    monkeypatch.setitem(
        filesystem._MAKERS, "hdfs", lambda root, _: filesystem.Storage(None, root, None)
    )
    monkeypatch.setitem(filesystem._MAKERS, "viewfs", filesystem._MAKERS["hdfs"])
    monkeypatch.setattr(filesystem, "_known", {})
    path = path_of(uri)
    if asked:
        with pytest.raises(StorageError, match=f"{uri}: the name node does not answer: timed out"):
            path.exists()
    else:
        assert path.storage
    assert found == asked


@cases(
    "answer, said",
    (b"HTTP/1.1 302 Found\r\n\r\n", "does not answer: at 127.0.0.1:[0-9]+ is a web server"),
    (None, "does not answer: timed out"),
    (b"HTTP/1.1 404 Not Found\r\n\r\nYou want a Hadoop IPC port", ""),
    (b"", ""),
)
def test_a_port_of_something_else(monkeypatch, answer, said):
    """hdfs-native would wait for it for ever, or say after 90 seconds that there is no file."""
    # One that answers is waited for, however long it takes.
    monkeypatch.setattr(filesystem, "ANSWER_SECONDS", 0.2 if answer is None else programs.PATIENCE)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                if answer is None:
                    connection.recv(100)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        path = path_of(f"hdfs://127.0.0.1:{server.getsockname()[1]}/x")
        try:
            if said:
                with pytest.raises(StorageError, match=said):
                    path.exists()
            else:
                assert path.storage
        finally:
            thread.join()


def test_no_such_bucket(s3):
    with pytest.raises(StorageError, match=r"NO_SUCH_BUCKET|NoSuchBucket"):
        path_of("s3://nowhere-to-be-found/x").write_bytes(b"x")


def test_stamps_tell_what_has_changed(root):
    root.mkdir(parents=True)
    (root / "folder").mkdir()
    (root / "a").write_bytes(b"x")
    (root / "folder" / "b").write_bytes(b"xy")
    before = root.stamps()
    assert {name: size for name, (size, _) in before.items()} == {
        (root / "a").uri: 1,
        (root / "folder" / "b").uri: 2,
    }
    assert all(abs(changed / 1e9 - time.time()) < 600 for _, changed in before.values())
    assert root.stamps() == before
    # S3 tells seconds.
    time.sleep(1.1)
    (root / "a").write_bytes(b"z")
    after = (root / "a").stamps()
    assert after.keys() == {(root / "a").uri}
    assert after[(root / "a").uri][1] > before[(root / "a").uri][1]
    assert (root / "gone").stamps() == {}
