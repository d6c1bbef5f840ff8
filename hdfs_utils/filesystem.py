"""Filesystems by URI, as pyarrow has them.

==================  =======================================================================
``file://``, none   this machine's files
``s3://``           pyarrow's own
``hdfs://``         hdfs-native: no JVM; also ``viewfs://``
``webhdfs://``      fsspec's, over HTTP, where the name node's port is out of reach; also
                    ``swebhdfs://``; needs the package ``requests``
==================  =======================================================================

``hdfs:///path``, without a name node, means that of the cluster which this machine's client is
configured for (``HADOOP_CONF_DIR`` or ``HADOOP_HOME``), or of the one that
``gradreduce cluster up`` has started. Name services of several name nodes and Kerberos are
configured as for Hadoop's own client: hdfs-native reads the same files and ticket cache.
"""

import contextlib
import os
import posixpath
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hdfs_utils import kerberos
from hdfs_utils.errors import AddressError, KerberosError, StorageError, TicketError

if TYPE_CHECKING:
    from pyarrow import fs

#: Times that hdfs-native asks the name nodes before it gives up, about ten seconds in all. Its own
#: default takes minutes.
NAME_NODE_ATTEMPTS = 5

#: Seconds that a host may take to take a connection.
CONNECT_SECONDS = 4

#: Seconds that a name node may then take to answer, since a busy one needs some.
ANSWER_SECONDS = 20

#: Seconds that WebHDFS may take to answer.
WEBHDFS_SECONDS = 60


@dataclass(frozen=True)
class Storage:
    """A filesystem and its abilities.

    Attributes
    ----------
    filesystem : pyarrow.fs.FileSystem
    root : str
        What stands in front of its paths in a URI.
    rename : callable or None
        ``rename(source, target, overwrite)`` gives a file or a folder another name in one step; if
        the name is taken and ``overwrite`` is false, it raises a ``FileExistsError``. None on S3,
        where nothing has a name but whole files.
    make_private : callable or None
        ``make_private(path)`` makes a folder, unless it is there, that only its owner may look
        into. None on S3, where the bucket's policy says who may.
    """

    filesystem: "fs.FileSystem"
    root: str
    rename: Callable[[str, str, bool], None] | None
    make_private: Callable[[str], None] | None = None

    def open(self, path: str) -> Any:
        """A new file, for writing."""
        # pyarrow would compress what is called .gz.
        return self.filesystem.open_output_stream(path, compression=None)


def is_remote(place: str) -> bool:
    """Whether a path is a URI of another filesystem than this machine's.

    Raises
    ------
    AddressError
        Its scheme is unknown.
    """
    scheme, separator, _ = place.partition("://")
    if not separator:
        return False
    if scheme not in ("file", *_MAKERS):
        raise AddressError(
            f"{place}: {scheme}:// is not a filesystem known here. Expected a path, or one of "
            f"{', '.join(f'{known}://' for known in ('file', *_MAKERS))}"
        )
    return scheme != "file"


def filesystem(uri: str) -> "tuple[fs.FileSystem, str]":
    """The filesystem of a URI or of a path of this machine, and the path in it.

    Raises
    ------
    AddressError
        The URI makes no sense, or names no cluster and none is configured.
    StorageError
        A package is missing.
    """
    if not is_remote(uri):
        from pyarrow import fs

        return fs.LocalFileSystem(), str(Path(uri.removeprefix("file://")).absolute())
    found, path = storage(uri)
    return found.filesystem, path


def storage(uri: str) -> tuple[Storage, str]:
    """The same as :func:`filesystem` for a remote URI, with the filesystem's abilities."""
    scheme, _, rest = uri.partition("://")
    authority, _, path = rest.partition("/")
    if set(authority) & set("@?#"):
        raise AddressError(
            f"{uri}: expected {scheme}://HOST:PORT/PATH, found {authority!r} as host"
        )
    path = posixpath.normpath(f"/{path}")
    if scheme == "s3":
        path = f"{authority}{path}".rstrip("/")
        authority, root = "", "s3://"
    else:
        authority = authority or _default_authority(uri, scheme)
        root = f"{scheme}://{authority}"
    # A client has threads, which a fork does not copy. What hdfs-native keeps for all clients, its
    # connections to data nodes in the three seconds after a use, it does: a child that is forked
    # then may wait a minute for the first answer. Workers are therefore started by a fork server,
    # unless the job's class is in no file.
    key = os.getpid(), scheme, authority
    if key not in _known:
        if scheme == "hdfs" and authority not in _reached:
            _take_own(authority)
        _known[key] = _MAKERS[scheme](root, authority)
    return _known[key], path


_known: dict[tuple[int, str, str], Storage] = {}


def reached(uri: str) -> Storage:
    """The filesystem of a URI, after a look at its first use whether its name node is there.

    hdfs-native looks for a minute and more, and then says that the file does not exist; it waits
    for ever where something takes a connection and is silent. A task on a node has no need of this:
    its job has come that far.

    Raises
    ------
    OSError
        It does not answer.
    KerberosError
        It wants a ticket, and there is none that is valid, or that it accepts.
    """
    found, _ = storage(uri)
    scheme, _, authority = found.root.partition("://")
    if scheme != "hdfs" or authority in _reached or "CONTAINER_ID" in os.environ:
        return found
    errors: list[OSError] = []
    for address in name_nodes(authority):
        try:
            _knock(address)
            break
        except OSError as error:
            errors.append(error)
    else:
        if errors:
            raise OSError(f"the name node does not answer: {errors[0]}") from errors[0]
    if is_secure():
        try:
            kerberos.ticket()
        except KerberosError as error:
            raise KerberosError(f"{found.root} asks for a Kerberos ticket: {error}") from error
        with remote_errors(found.root):
            found.filesystem.get_file_info("/")
    _reached.add(authority)
    return found


_reached: set[str] = set()


def known_places() -> tuple[list[str], list[str]]:
    """Schemes and name nodes that this process has used, for :func:`expect` in another process."""
    return sorted({scheme for _, scheme, _ in _known}), sorted(_reached)


def expect(schemes: Iterable[str], reached: Iterable[str]) -> None:
    """Load what some filesystems need, without a connection, for processes that are forked later.

    What another process has reached, they need not look for.
    """
    for scheme in schemes:
        import_module(_MODULES[scheme])
    _reached.update(reached)


def _knock(address: str) -> None:
    """See whether something answers, and is no web server: Hadoop's RPC tells browsers what it is.

    What closes the connection is given the benefit of the doubt. Raises OSError.
    """
    import socket

    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), CONNECT_SECONDS) as connection:
        connection.settimeout(ANSWER_SECONDS)
        answer = b""
        with contextlib.suppress(ConnectionError), connection.makefile("rb") as stream:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answer = stream.read(1024)
    if answer.startswith(b"HTTP/") and b"IPC port" not in answer:
        raise OSError(f"at {address} is a web server")


def name_nodes(authority: str) -> list[str]:
    """Where the name nodes of an ``hdfs://`` URI answer, as ``HOST:PORT``.

    A name service has several, if Hadoop's configuration here says where they are.
    """
    site = _site("hdfs-site.xml")

    def names(key: str) -> list[str]:
        return re.split(r"[\s,]+", site.get(key, ""))

    if authority not in names("dfs.nameservices"):
        return [authority if ":" in authority else f"{authority}:{NAME_NODE_PORT}"]
    ends = (f"{authority}.{name}" for name in names(f"dfs.ha.namenodes.{authority}"))
    found = (site.get(f"dfs.namenode.rpc-address.{end}") for end in ends)
    return [address for address in found if address]


def _default_authority(uri: str, scheme: str) -> str:
    """The name node of the cluster configured here, or of our own cluster, if it is up."""
    default = _site("core-site.xml").get("fs.defaultFS")
    if not default and (running := _running_cluster()):
        default = running.hdfs_uri
    parts = urlsplit(default or "")
    if parts.scheme != scheme or not parts.netloc:
        found = f"the default filesystem is {default}" if default else "no cluster is configured"
        raise AddressError(
            f"{uri} names no host, and {found}. Write {scheme}://HOST:PORT/PATH, set "
            f"HADOOP_CONF_DIR, or start a cluster of your own: gradreduce cluster up"
        )
    return parts.netloc


def _site(name: str) -> dict[str, str]:
    """The properties in a file of the configuration that Hadoop's own client finds."""
    if folder := os.environ.get("HADOOP_CONF_DIR"):
        return properties(Path(folder), name)
    home = os.environ.get("HADOOP_HOME")
    return properties(Path(home, "etc", "hadoop") if home else None, name)


def properties(folder: Path | None, name: str) -> dict[str, str]:
    """The properties in a file of Hadoop's configuration; empty if the file does not exist.

    Raises
    ------
    AddressError
        The file is damaged.
    """
    if folder is None or not (folder / name).is_file():
        return {}
    from xml.etree import ElementTree

    try:
        root = ElementTree.parse(folder / name).getroot()  # noqa: S314  (the user's own file)
    except ElementTree.ParseError as error:
        raise AddressError(f"{folder / name} is not a configuration of Hadoop: {error}") from error
    return {
        entry.findtext("name", "").strip(): entry.findtext("value", "").strip()
        for entry in root.iter("property")
    }


def _running_cluster() -> Any:
    from hdfs_utils import cluster

    return cluster.running()


def _take_own(authority: str) -> None:
    """Use the configuration of a cluster of our own, if it takes more than an address."""
    if os.environ.get("HADOOP_CONF_DIR") or os.environ.get("HADOOP_HOME"):
        return
    running = _running_cluster()
    if running and (running.kerberos or running.ha) and running.hdfs_uri == f"hdfs://{authority}":
        running.enter()


#: The port of a name node, where a URI names none.
NAME_NODE_PORT = 8020
#: Options of hdfs-native, unless Hadoop's configuration says otherwise.
_HDFS_OPTIONS = {
    "dfs.client.failover.max.attempts": str(NAME_NODE_ATTEMPTS),
    # A small cluster has no other data node to take the place of one that is lost; the name node
    # makes up for the replica later.
    "dfs.client.block.write.replace-datanode-on-failure.best-effort": "true",
}


class PlainPaths:
    """In front of a filesystem of fsspec: takes paths as they are.

    fsspec would read them as URLs, and cut names at ``#``, ``?`` and ``;``.
    """

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path


def _hdfs(root: str, authority: str) -> Storage:
    from pyarrow import fs

    from hdfs_utils import native

    configured = _site("hdfs-site.xml")
    options = {name: value for name, value in _HDFS_OPTIONS.items() if name not in configured}
    host, _, port = authority.partition(":")
    scheme = root.partition("://")[0]
    try:
        handler = native.handler(scheme, host, int(port) if port else None, options)
    except RuntimeError:
        if port or scheme != "hdfs":
            raise
        # As for Hadoop, a name that its configuration does not know is that of a host.
        handler = native.handler(scheme, host, NAME_NODE_PORT, options)
    client = handler.fs.client

    def make_private(path: str) -> None:
        client.mkdirs(path, 0o700, False)
        # It may have existed.
        client.set_permission(path, 0o700)

    return Storage(fs.PyFileSystem(handler), root, client.rename, make_private)


def _webhdfs(root: str, authority: str) -> Storage:
    try:
        from fsspec.implementations.webhdfs import WebHDFS
    except ImportError as error:
        raise StorageError(
            f"{root}: WebHDFS needs a package that is missing here: pip install requests"
        ) from error
    from pyarrow import fs

    class Web(PlainPaths, WebHDFS):
        def _call(self, op: str, method: str = "get", path: str | None = None, **how: Any) -> Any:
            # Java writes the address of a data node so. It would be another file's.
            if path and not unicodedata.is_normalized("NFC", path):
                raise AddressError(
                    f"{root}{path}: WebHDFS reaches no name with a combining sign (ä as a and ¨, "
                    f"as a Mac writes it). Use hdfs://, or rename it: hadoop fs -mv"
                )
            return super()._call(op, method, path, **how)

    host, _, port = authority.partition(":")
    secure = root.startswith("swebhdfs")
    web = Web(
        host,
        int(port or (9871 if secure else 9870)),
        user=None if is_secure() else user_name(),
        kerberos=is_secure(),
        data_proxy=lambda url: _reachable(url, host),
        use_https=secure,
        skip_instance_cache=True,
    )
    web.session.request = partial(web.session.request, timeout=(CONNECT_SECONDS, WEBHDFS_SECONDS))

    def rename(source: str, target: str, overwrite: bool) -> None:
        how = "OVERWRITE" if overwrite else "NONE"
        try:
            web._call("rename", "put", path=source, destination=target, renameoptions=how)
        except (OSError, RuntimeError) as error:
            # fsspec has no error of its own for it.
            if "already exists" in str(error):
                raise FileExistsError(17, "File exists", f"{root}{target}") from error
            raise

    def make_private(path: str) -> None:
        web._call("mkdirs", "put", path=path, permission="700")
        web.chmod(path, "700")

    handled = fs.PyFileSystem(fs.FSSpecHandler(web))
    return Storage(handled, root, rename, make_private)


def user_name() -> str:
    """The user's name for Hadoop: by the ticket, or ``HADOOP_USER_NAME``, or this machine's user.

    Raises
    ------
    KerberosError
        The cluster has Kerberos, and there is no valid ticket.
    """
    if is_secure() and "CONTAINER_ID" not in os.environ:
        return re.split("[/@]", kerberos.ticket().principal)[0]
    if name := os.environ.get("HADOOP_USER_NAME"):
        return name
    import getpass

    return getpass.getuser()


def is_secure() -> bool:
    """Whether the cluster that is configured here knows its users by Kerberos."""
    return _site("core-site.xml").get("hadoop.security.authentication") == "kerberos"


def refused(error: KerberosError) -> KerberosError:
    """An error of Kerberos, with whose the ticket is where it is not of the cluster's realm."""
    name_node = _site("hdfs-site.xml").get("dfs.namenode.kerberos.principal", "")
    try:
        realm, principal = name_node.partition("@")[2], kerberos.ticket().principal
    except KerberosError:
        return error
    if isinstance(error, TicketError):
        return error
    if not realm or principal.endswith(f"@{realm}"):
        return KerberosError(f"{error}. 'gradreduce doctor' shows the ticket")
    return KerberosError(
        f"{error}. The ticket in {kerberos.cache_name()} is of {principal}, and the cluster of the "
        f"realm {realm}. Get a ticket of that: kinit NAME@{realm}. If the realms trust each other, "
        f"krb5.conf must name both"
    )


def _reachable(url: str, name_node: str) -> str:
    """The URL of a data node, at the name node's address if its own name is not known here."""
    import socket

    parts = urlsplit(url)
    try:
        socket.getaddrinfo(parts.hostname, parts.port)
    except OSError:
        return parts._replace(netloc=f"{name_node}:{parts.port}").geturl()
    return url


def _s3(root: str, authority: str) -> Storage:
    from pyarrow import fs

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    options: dict[str, Any] = {"request_timeout": 60, "connect_timeout": 10}
    if endpoint:
        options["endpoint_override"] = endpoint
        options["scheme"] = urlsplit(endpoint).scheme or "https"
    if region:
        options["region"] = region
    made = fs.S3FileSystem(allow_bucket_creation=False, **options)
    return Storage(made, root, None)


_MAKERS: dict[str, Callable[[str, str], Storage]] = {
    "s3": _s3,
    "hdfs": _hdfs,
    "viewfs": _hdfs,
    "webhdfs": _webhdfs,
    "swebhdfs": _webhdfs,
}


#: Where their clients are.
_MODULES = {
    "s3": "pyarrow.fs",
    **dict.fromkeys(("hdfs", "viewfs"), "hdfs_utils.native"),
    **dict.fromkeys(("webhdfs", "swebhdfs"), "fsspec.implementations.webhdfs"),
}

_PASSED = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)

#: What a server says of a ticket.
_REFUSED = "GSS initiate failed"

#: What to do about errors of the name node or of S3, by a word in them.
_ADVICE = {
    "SafeMode": "Wait until 'hdfs dfsadmin -safemode get' says OFF, then run the command again",
    "could only be": "The data nodes have no space left, or too few of them are alive: "
    "hdfs dfsadmin -report",
    **dict.fromkeys(
        # The last says hdfs-native of another RPC than a name node's, as of YARN's port.
        ("does not answer", "Connection refused", "RPC listener disconnected"),
        "Is the cluster up, and are host and port those of the name node's RPC? "
        "'gradreduce cluster status' shows a cluster of your own",
    ),
    "StandbyException": "Use the name service's name and HADOOP_CONF_DIR",
    "ExpiredToken": "Get new credentials, then run the command again",
    "InvalidAccessKeyId": "See 'aws configure list'",
    "SignatureDoesNotMatch": "See 'aws configure list'",
    "ACCESS_DENIED": "See 'aws configure list'",
    "NETWORK_CONNECTION": "Check the region and the endpoint",
    "No Kerberos credentials": "Get a new ticket: kinit",
    _REFUSED: "It does not accept the ticket: 'gradreduce doctor' shows it. Do the clocks of both "
    "machines agree (timedatectl)?",
}


@contextlib.contextmanager
def remote_errors(uri: object) -> Iterator[None]:
    """Say what went wrong at which URI.

    That a file exists, or does not, passes as Python's own error; all else that a filesystem or
    its client raises becomes a :class:`StorageError`.
    """
    try:
        yield
    except _PASSED:
        raise
    except Exception as error:
        if not isinstance(error, OSError) and not _is_clients(error):
            raise
        text = _message_of(error)
        if text.startswith("Kerberos: "):
            said = refused(kerberos.refusal(text.removeprefix("Kerberos: ")))
            raise KerberosError(f"{uri}: {said}") from error
        advice = next((what for word, what in _ADVICE.items() if word in text), "")
        kind = KerberosError if _REFUSED in text else StorageError
        raise kind(f"{uri}: {text}{f'. {advice}' if advice else ''}") from error


def _message_of(error: Exception) -> str:
    """An error's message, without the stack of the Java process that raised it."""
    text = re.split(r"(?:\n|\\n)(?:\t|\\t)+at ", str(error))[0]
    if match := re.match(r'\w*RPCError\("([\w.$]*?)(\w+)", "(.*)', text, re.DOTALL):
        text = f"{match[2]}: {match[3]}".removesuffix('")').replace('\\"', '"')
    elif match := re.match(r'GSSAPIError\(.*, "(?:.*?: )?(.*)"\)', text, re.DOTALL):
        text = f"Kerberos: {match[1]}".replace('\\"', '"')
    text = " ".join(text.replace("\\n", " ").split())
    return text if len(text) <= 400 else text[:399] + "…"


def _is_clients(error: Exception) -> bool:
    """Whether a filesystem's client raised an exception."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    places = (type(error).__module__, frame.tb_frame.f_globals.get("__name__", "") if frame else "")
    return any(place.partition(".")[0] in _CLIENTS for place in places)


_CLIENTS = ("pyarrow", "requests", "urllib3", "hdfs_native", "fsspec")
