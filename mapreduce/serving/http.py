"""The application: paths, bodies and their bounds, and the errors of all, as JSON."""

import asyncio
import contextlib
import hmac
import json
import os
import random
import re
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any
from urllib.parse import unquote

import httptools

from mapreduce.errors import GradreduceError
from mapreduce.serving import page, protocol, tables
from mapreduce.serving.metrics import Metrics
from mapreduce.serving.model import ServedModel
from mapreduce.serving.protocol import Reply
from mapreduce.serving.refusals import Refused, plain
from mapreduce.serving.turns import InTurns, Turns

#: Bytes of JSON in a request: while it is parsed, nothing else is done.
MOST_JSON = 1 << 20
#: Bytes of other bodies, packed and unpacked, and of all that a worker holds.
MOST_BODY, MOST_HELD = 64 << 20, 256 << 20
#: Bytes that are parsed beside the event loop.
_LARGE = 1 << 18
#: Whether a name is one of this machine.
_is_local = lru_cache(maxsize=16)(
    re.compile(rb"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]*)?", re.I).fullmatch
)
_ID = re.compile(rb"[!-~]{1,128}")
_EXTENSIONS = ["binary_tensor_data", "model_repository"]
_FILES = {kind.encode(): kind for kind in (tables.CSV, tables.ARROW)}


class Request:
    """A request: its line and its header, and what has come of its body."""

    url, method, kind, id = b"", "", b"", b""
    #: The model that the path names, and what the path asks of it, or of the service.
    model: ServedModel | None = None
    what = ""
    #: Bytes: of the header, of the body, those that count in what a worker holds, those dropped.
    header_size = size = held = unread = 0
    #: The most bytes of the body, what to do about more, and how many of them are JSON.
    most, advice = 0, ""
    head: int | None = None
    error: Exception | None = None
    is_headed = is_last = False
    began = 0.0

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.parts: list[bytes] = []

    @property
    def body(self) -> bytes:
        """What has come of the body."""
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)


@dataclass(frozen=True)
class Settings:
    """How a service is run.

    ``token``: What requests are to have, or None. ``access_log``: Whether there is a line for each
    answer. ``version``: Of the program. ``connections``: Of a worker. Seconds are those for a
    header and a body to come, and for an answer to be read.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    token: bytes | None = None
    access_log: bool = False
    version: str = ""
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    answer_seconds: float = 60.0
    connections: int = 1024

    @property
    def is_local(self) -> bool:
        """Whether only names of this machine are answered."""
        return self.host in ("127.0.0.1", "localhost", "::1")


def _unpacked(request: Request, bits: int) -> bytes:
    """The content of a packed body. Raises Refused (it is too large, or damaged)."""
    unpack = zlib.decompressobj(bits)
    try:
        found = unpack.decompress(request.body, request.most)
    except zlib.error as error:
        raise Refused(400, f"the body cannot be unpacked: {error}") from error
    if unpack.unconsumed_tail:
        raise _too_large(request)
    if not unpack.eof or unpack.unused_data:
        raise Refused(400, "the body cannot be unpacked: expected one stream, and all of it")
    return found


class Application:
    """Answers the requests of one worker, in whose event loop it is made."""

    def __init__(self, models: Sequence[ServedModel], metrics: Metrics, settings: Settings) -> None:
        self.models = {model.name: model for model in models}
        self.metrics, self.settings, self._is_local = metrics, settings, settings.is_local
        self.is_ready, self._held = True, 0
        self._loop = asyncio.get_running_loop()
        self._turns = Turns(self._loop)
        self._threads = ThreadPoolExecutor(2, "gradreduce-bodies")
        self._place = lru_cache(maxsize=256)(self._find_place)

    def connect(self, connections: int) -> None:
        """Know how many connections are open now."""
        self.metrics.connect(connections)
        self._turns.connections = connections

    # Before an answer

    def admit(self, request: Request, error: str) -> None:
        """Find what is asked, once the header has come; ``error``: what is wrong with that."""
        headers = request.headers
        request.began = time.perf_counter()
        id = headers.get(b"x-request-id")
        request.id = id if id and _ID.fullmatch(id) else b"%016x" % random.getrandbits(64)
        try:
            if error:
                raise Refused(431, error)
            self._check_client(request)
            self._bound(request)
            if not _is_at_most(headers.get(b"content-length", b"0"), request.most):
                raise _too_large(request)
        except Exception as found:
            request.error = found

    def _check_client(self, request: Request) -> None:
        """Refuse who may not ask."""
        headers = request.headers
        if self._is_local and not _is_local(host := headers.get(b"host", b"")):
            raise Refused(
                403,
                f"host: expected localhost or 127.0.0.1, since only this machine is served, found "
                f"{host.decode('latin-1')!r:.60}. Another name needs 'gradreduce serve --host'",
            )
        # A link to the page may stand anywhere.
        if request.method == "POST" and headers.get(b"sec-fetch-site") == b"cross-site":
            raise Refused(
                403,
                "sec-fetch-site: expected a request of a program, or of the page of this service, "
                "found one of a page of another site",
            )
        if (wanted := self.settings.token) is None or request.url.startswith(b"/v2/health/"):
            return
        if _path(request.url).rstrip("/") in page.FILES:
            return
        kind, _, token = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() != b"bearer" or not hmac.compare_digest(token.strip(), wanted):
            raise Refused(
                401,
                "authorization: expected 'Bearer' and the token of this service",
                (b"www-authenticate", b"Bearer"),
            )

    def _find_place(self, url: bytes) -> tuple[ServedModel | None, str]:
        """The model that a path names, and what the path asks of it, or of the service."""
        path = unquote(_path(url)).rstrip("/")
        parts = path.split("/")[1:]
        if parts[:2] != ["v2", "models"] or len(parts) < 3:
            return None, path
        name, others = parts[2], parts[3:]
        model = self.models.get(name)
        if model is None:
            known = ", ".join(self.models)
            raise Refused(404, f"there is no model {name:.80}: expected {known:.400}")
        if others[:1] == ["versions"] and len(others) > 1:
            if others[1] != model.version:
                raise Refused(
                    404,
                    f"model {name} has no version {others[1]:.40}: expected {model.version}",
                )
            others = others[2:]
        return model, "/".join(["model", *others])

    def _bound(self, request: Request) -> None:
        """Find what the path asks, and how long the body may be."""
        request.model, request.what = model, what = self._place(request.url)
        if what not in _PATHS:
            raise Refused(404, f"nothing is here: expected one of {', '.join(_PATHS.values())}")
        wanted = "POST" if what in ("model/infer", "/v2/repository/index") else "GET"
        if request.method != wanted and (request.method, wanted) != ("HEAD", "GET"):
            raise Refused(
                405, f"expected {wanted}, found {request.method:.20}", (b"allow", wanted.encode())
            )
        request.kind, request.head = _kind(request.headers.get(b"content-type", b"")), None
        request.most, request.advice = MOST_BODY, ". Send parts"
        head = request.headers.get(b"inference-header-content-length")
        if request.kind in _FILES and model is not None:
            if model.recipe is None:
                raise Refused(
                    415,
                    f"{request.kind.decode()}: expected a tensor, since the model was not trained "
                    f"on a table",
                )
        elif head is None:
            request.most = MOST_JSON
            request.advice = ". Send the numbers in binary: 'Inference-Header-Content-Length'"
        elif not _is_at_most(head, MOST_JSON):
            raise Refused(
                400,
                f"inference-header-content-length: expected 0 to {MOST_JSON}, found "
                f"{head.decode('latin-1')!r:.40}",
            )
        else:
            request.head = int(head)

    def take(self, request: Request, part: bytes) -> None:
        """Take a part of the body; what is too much is refused, and what is refused is dropped."""
        size = len(part)
        request.size += size
        if request.error is not None:
            request.unread += size
            return
        try:
            if request.size > request.most:
                raise _too_large(request)
            self._hold(request, size)
            request.parts.append(part)
        except Refused as error:
            request.error = error
            self.release(request)

    def _hold(self, request: Request, size: int) -> None:
        """Hold so many more bytes. Raises Refused (a worker holds too many)."""
        if self._held + size > MOST_HELD:
            raise Refused(503, "too many large bodies at once. Ask again", (b"retry-after", b"1"))
        self._held += size
        request.held += size

    def release(self, request: Request) -> None:
        """Hold nothing of a request any more."""
        self._held -= request.held
        request.held = 0
        request.parts.clear()

    # The answer

    async def reply(self, request: Request) -> Reply:
        """The answer to a request, which may be an error."""
        try:
            if request.error is not None:
                raise request.error
            if request.what == "model/infer":
                return await self._infer(request)
            await self._unpack(request)
            return self._tell(request)
        except Exception as error:
            return _error(error)

    def count(self, request: Request, reply: Reply) -> None:
        """Count an answer that was sent, and write of it in the log."""
        self.release(request)
        seconds, model = time.perf_counter() - request.began, request.model
        if model is not None and request.what == "model/infer":
            self.metrics.count(model.name, reply.status, seconds, reply.rows, reply.is_warned)
        self.metrics.wait(self._turns.waiting_rows)
        if self.settings.access_log:
            _log(
                f"{request.id.decode()} {request.method} {_path(request.url)} {reply.status} "
                f"rows={reply.rows} bytes={len(reply.body)} ms={1000 * seconds:.1f}"
            )

    async def _unpack(self, request: Request) -> None:
        """Unpack the body. Raises Refused (it is too large, or damaged)."""
        coding = request.headers.get(b"content-encoding", b"identity").lower().strip()
        if coding == b"identity":
            return
        bits = {b"gzip": 31, b"deflate": 15}.get(coding)
        if bits is None:
            name = coding.decode("latin-1")
            raise Refused(415, f"content-encoding: expected gzip or deflate, found {name!r:.40}")
        self._hold(request, request.most)
        request.parts = [await self._beside(request.most, partial(_unpacked, request, bits))]
        request.size = len(request.parts[0])

    async def _beside(self, size: int, work: Callable[[], Any]) -> Any:
        """What ``work`` gives; if it takes long by its size, in another thread."""
        if size <= _LARGE:
            return work()
        return await self._loop.run_in_executor(self._threads, work)

    def _tell(self, request: Request) -> Reply:
        """What a path tells that asks for no prediction."""
        content: Any
        model = request.model
        match request.what:
            case "model" if model is not None:
                content = protocol.metadata(model)
            case "model/ready" if model is not None:
                content = {"name": model.name, "ready": self._check_ready()}
            case "/v2":
                content = {
                    "name": "gradreduce",
                    "version": self.settings.version,
                    "extensions": _EXTENSIONS,
                }
            case "/v2/health/live":
                content = {"live": True}
            case "/v2/health/ready":
                content = {"ready": self._check_ready()}
            case "/v2/repository/index":
                content = [
                    {"name": name, "version": one.version, "state": "READY", "reason": ""}
                    for name, one in self.models.items()
                ]
            case path if path in page.FILES:
                return Reply(*page.FILES[path], page.HEADERS)
            case _:
                text = self.metrics.text([*self.models.values()])
                return Reply(text.encode(), b"text/plain; version=0.0.4")
        return Reply(protocol.dumps(content))

    def _check_ready(self) -> bool:
        if not self.is_ready:
            raise Refused(503, "the service ends", (b"retry-after", b"1"))
        return True

    async def _infer(self, request: Request) -> Reply:
        model = request.model
        assert model is not None, "the path names it"
        if b"content-encoding" in request.headers:
            await self._unpack(request)
        if request.kind in _FILES:
            return await self._infer_file(model, request, request.body)
        head, size = request.head, request.size
        if head is not None and head > size:
            raise Refused(
                400,
                f"inference-header-content-length: expected at most the {size} bytes of the "
                f"body, found {head}",
            )
        if head is None or size <= _LARGE:
            asked = protocol.parse_request(model, request.body, head)
        else:
            parts = request.parts
            asked = await self._beside(
                size, lambda: protocol.parse_request(model, b"".join(parts), head)
            )
        rows, notes = asked.rows, []
        if len(rows) > tables.FEW_ROWS and isinstance(rows, tables.TableRows):
            make = partial(tables.features_of, model, rows.table)
            rows, notes = await self._beside(_LARGE + 1, make)
        values, others = await self._turns.submit(model, rows)
        return protocol.answer(model, asked, values, notes + others)

    async def _infer_file(self, model: ServedModel, request: Request, body: bytes) -> Reply:
        """A table in, and the table of ``gradreduce predict`` out."""
        kind, to = request.kind, _bare(request.headers.get(b"accept", b""))
        out = to if to in _FILES else kind
        predictor: Any = InTurns(model, self._turns, self._loop)
        work = partial(tables.answer_file, predictor, model, body, _FILES[kind], _FILES[out])
        found, notes, rows = await self._beside(_LARGE + 1, work)
        about = [(b"gradreduce-model-sha256", model.sha256.encode())]
        if notes:
            # A list of JSON in ASCII, of which long ones are cut.
            shown = json.dumps([note[:500] for note in notes[:8]])
            about.append((b"gradreduce-warnings", shown.encode()))
        return Reply(found, out, tuple(about), rows=rows, is_warned=bool(notes))


def _log(line: str) -> None:
    """Write a line of the log at once; nobody has to read it."""
    with contextlib.suppress(OSError):
        os.write(1, f"{line}\n".encode())


def _is_at_most(text: bytes, most: int) -> bool:
    """Whether a text is a number from 0 to another one."""
    # Python refuses to read numbers of thousands of digits.
    return text.isdigit() and len(text) < 100 and int(text) <= most


def _too_large(request: Request) -> Refused:
    return Refused(413, f"the body: expected at most {request.most:,} bytes{request.advice}")


def _path(url: bytes) -> str:
    """The path of a URL, which may name the host, too."""
    if url.startswith(b"/"):
        path = url.partition(b"?")[0]
    else:
        try:
            path = httptools.parse_url(url).path or b"/"
        except httptools.HttpParserInvalidURLError:
            path = url
    return path.decode("latin-1")


@lru_cache(maxsize=256)
def _kind(text: bytes) -> bytes:
    """The type of a body. Raises Refused (its text is not in UTF-8)."""
    for parameter in text.split(b";")[1:]:
        name, _, charset = parameter.strip().lower().partition(b"=")
        if name == b"charset" and charset.strip(b'"') not in (b"utf-8", b"utf8", b"us-ascii"):
            shown = charset.decode("latin-1")
            raise Refused(415, f"content-type: expected charset=utf-8, found {shown!r:.40}")
    return _bare(text)


def _bare(kind: bytes) -> bytes:
    """A type without parameters."""
    return kind.partition(b";")[0].strip().lower()


#: The paths that there are, and how an error shows them.
_PATHS = {
    **{path: path or "/" for path in page.FILES},
    **{path: path for path in ("/v2", "/v2/health/live", "/v2/health/ready")},
    **{path: path for path in ("/v2/repository/index", "/metrics")},
    "model": "/v2/models/NAME",
    "model/ready": "/v2/models/NAME/ready",
    "model/infer": "/v2/models/NAME/infer",
}


def _error(error: Exception) -> Reply:
    """What a client is told of an error."""
    if isinstance(error, Refused):
        return Reply(error_body(str(error)), status=error.status, headers=error.headers)
    if isinstance(error, GradreduceError):
        return Reply(error_body(plain(error)), status=400)
    traceback.print_exception(error, file=sys.stderr)
    text = f"{type(error).__name__}: {error}. This should not happen; the service's log shows where"
    return Reply(error_body(text), status=500)


def error_body(text: str) -> bytes:
    """The JSON of an error."""
    # Texts of damaged requests may hold what is no text.
    return protocol.dumps({"error": text.encode(errors="backslashreplace").decode()})
