"""The application: paths, bodies and their bounds, and the errors of all, as JSON."""

import asyncio
import hmac
import json
import re
import secrets
import sys
import time
import traceback
import zlib
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mapreduce.errors import GradreduceError
from mapreduce.serving import page, protocol, tables
from mapreduce.serving.metrics import Metrics
from mapreduce.serving.model import ServedModel
from mapreduce.serving.refusals import Refused, plain
from mapreduce.serving.turns import Computed, InTurns, Turns

#: Bytes of JSON in a request: while it is parsed, nothing else is done.
MOST_JSON = 1 << 20
#: Bytes of other bodies, packed and unpacked, and of all that a worker holds.
MOST_BODY, MOST_HELD = 64 << 20, 256 << 20
#: Bytes that are parsed beside the event loop.
_LARGE = 1 << 18
#: Bytes that are read of a body which is refused, so that its client sees why.
_MOST_UNREAD = 1 << 20
_LOCAL = re.compile(rb"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]*)?", re.I)
_ID = re.compile(rb"[!-~]{1,128}")
_EXTENSIONS = ["binary_tensor_data", "model_repository"]
_FILES = {kind.encode(): kind for kind in (tables.CSV, tables.ARROW)}

Header = tuple[bytes, bytes]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


@dataclass(frozen=True)
class Reply:
    """An answer: its body, the type of that, and other headers; and what is counted of it."""

    body: bytes
    kind: str = "application/json"
    headers: tuple[Header, ...] = ()
    status: int = 200
    rows: int = 0
    is_warned: bool = False


class _Body:
    """The body of a request, which counts in what a worker holds until its answer."""

    def __init__(self, application: "Application", headers: dict[bytes, bytes], receive: Receive):
        self._application, self._headers, self._receive = application, headers, receive
        self.held, self.is_read = 0, False

    async def read(self, most: int, advice: str = "") -> bytes:
        """All of it, unpacked. Raises Refused (it is too large, or cut)."""
        length = self._headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > most:
            raise _too_large(most, advice)
        parts = []
        while not self.is_read:
            parts.append(part := await self._next())
            self._hold(len(part))
            if self.held > most:
                raise _too_large(most, advice)
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        coding = self._headers.get(b"content-encoding", b"identity").lower().strip()
        if coding == b"identity":
            return body
        bits = {b"gzip": 31, b"deflate": 15}.get(coding)
        if bits is None:
            name = coding.decode("latin-1")
            raise Refused(415, f"content-encoding: expected gzip or deflate, found {name!r:.40}")
        self._hold(most)
        work = partial(_unpacked, body, bits, most)
        found: bytes | None = await self._application.beside(most, work)
        if found is None:
            raise _too_large(most, advice)
        return found

    def _hold(self, size: int) -> None:
        self._application.hold(size)
        self.held += size

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.is_read = True
            raise asyncio.CancelledError
        self.is_read = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part

    async def drop(self) -> None:
        """Read some more of a body that is refused, else its client may not see why."""
        size = 0
        while not self.is_read and size <= _MOST_UNREAD:
            size += len(await self._next())


def _too_large(most: int, advice: str) -> Refused:
    return Refused(413, f"the body: expected at most {most:,} bytes{advice}")


def _unpacked(body: bytes, bits: int, most: int) -> bytes | None:
    """The content of a packed body; None if it is too large."""
    unpack = zlib.decompressobj(bits)
    try:
        found = unpack.decompress(body, most)
    except zlib.error as error:
        raise Refused(400, f"the body cannot be unpacked: {error}") from error
    if unpack.unconsumed_tail:
        return None
    if not unpack.eof or unpack.unused_data:
        raise Refused(400, "the body cannot be unpacked: expected one stream, and all of it")
    return found


class Application:
    """Answers the requests of one worker; an application of ASGI.

    ``token``: What requests are to have, or None. ``is_local``: Whether only names of this machine
    are answered. ``log``: Receives a line for each answer, if it is not None. ``version``: Of the
    program.
    """

    def __init__(
        self,
        models: Sequence[ServedModel],
        metrics: Metrics,
        *,
        token: bytes | None = None,
        is_local: bool = True,
        log: Callable[[str], object] | None = None,
        version: str = "",
    ) -> None:
        self.models = {model.name: model for model in models}
        self.metrics, self._token, self._is_local, self._log = metrics, token, is_local, log
        self.is_ready, self._held, self._version = True, 0, version
        self._turns: Turns | None = None

    @property
    def turns(self) -> Turns:
        """The turns of this worker's loop."""
        if self._turns is None:
            self._loop = asyncio.get_running_loop()
            self._turns = Turns(self._loop)
            self._threads = ThreadPoolExecutor(2, "gradreduce-bodies")
        return self._turns

    def hold(self, size: int) -> None:
        """Hold so many more bytes, or fewer. Raises Refused (a worker holds too many)."""
        self._held += size
        if size > 0 and self._held > MOST_HELD:
            self._held -= size
            raise Refused(503, "too many large bodies at once. Ask again", (b"retry-after", b"1"))

    async def beside(self, size: int, work: Callable[[], Any]) -> Any:
        """What ``work`` gives; if it takes long by its size, in another thread."""
        if size <= _LARGE:
            return work()
        return await self._loop.run_in_executor(self._threads, work)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        turns = self.turns
        headers = dict(scope["headers"])
        body = _Body(self, headers, receive)
        model, path = None, ""
        asked = headers.get(b"x-request-id", b"")
        id = asked if _ID.fullmatch(asked) else secrets.token_hex(8).encode()
        try:
            try:
                self._admit(scope, headers)
                model, path = self._place(scope)
                reply = await self._reply(model, path, scope["method"], headers, body)
            except Exception as error:
                reply = _error(error)
                await body.drop()
        except asyncio.CancelledError:
            # The client is gone.
            return
        finally:
            self.hold(-body.held)
        more = [(b"content-type", reply.kind.encode()), (b"x-request-id", id), *reply.headers]
        more.append((b"content-length", b"%d" % len(reply.body)))
        if not body.is_read and headers.keys() & {b"content-length", b"transfer-encoding"}:
            more.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": reply.status, "headers": more})
        await send({"type": "http.response.body", "body": reply.body})
        seconds = time.perf_counter() - started
        if model is not None and path == "model/infer":
            self.metrics.count(model.name, reply.status, seconds, reply.rows, reply.is_warned)
        self.metrics.wait(turns.waiting_rows)
        if self._log is not None:
            shown = scope["raw_path"].decode("latin-1")
            self._log(
                f"{id.decode()} {scope['method']} {shown} {reply.status} rows={reply.rows} "
                f"bytes={len(reply.body)} ms={1000 * seconds:.1f}"
            )

    def _admit(self, scope: dict[str, Any], headers: dict[bytes, bytes]) -> None:
        """Refuse who may not ask."""
        if self._is_local and not _LOCAL.fullmatch(headers.get(b"host", b"")):
            raise Refused(
                403,
                "host: expected localhost or 127.0.0.1, since only this machine is served. "
                "Another name needs 'gradreduce serve --host'",
            )
        path = scope["path"]
        if self._token is None or path.startswith("/v2/health/") or path.rstrip("/") in page.FILES:
            return
        kind, _, token = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._token):
            raise Refused(
                401,
                "authorization: expected 'Bearer' and the token of this service",
                (b"www-authenticate", b"Bearer"),
            )

    def _place(self, scope: dict[str, Any]) -> tuple[ServedModel | None, str]:
        """The model that a path names, and what the path asks of it, or of the service."""
        path = scope["path"].rstrip("/")
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

    async def _reply(
        self,
        model: ServedModel | None,
        path: str,
        method: str,
        headers: dict[bytes, bytes],
        body: _Body,
    ) -> Reply:
        wanted = "POST" if path in ("model/infer", "/v2/repository/index") else "GET"
        if path in _PATHS and method != wanted and (method, wanted) != ("HEAD", "GET"):
            raise Refused(
                405, f"expected {wanted}, found {method:.20}", (b"allow", wanted.encode())
            )
        content: Any
        match path:
            case "model/infer":
                assert model is not None, "the path names it"
                return await self._infer(model, headers, body)
            case "model":
                assert model is not None, "the path names it"
                content = protocol.metadata(model)
            case "model/ready":
                assert model is not None, "the path names it"
                content = {"name": model.name, "ready": self._check_ready()}
            case "/v2":
                content = {
                    "name": "gradreduce",
                    "version": self._version,
                    "extensions": _EXTENSIONS,
                }
            case "/v2/health/live":
                content = {"live": True}
            case "/v2/health/ready":
                content = {"ready": self._check_ready()}
            case "/v2/repository/index":
                await body.read(MOST_JSON)
                content = [
                    {"name": name, "version": one.version, "state": "READY", "reason": ""}
                    for name, one in self.models.items()
                ]
            case "/metrics":
                text = self.metrics.text([*self.models.values()])
                return Reply(text.encode(), "text/plain; version=0.0.4")
            case _ if path in page.FILES:
                return Reply(*page.FILES[path], page.HEADERS)
            case _:
                raise Refused(404, f"nothing is here: expected one of {', '.join(_PATHS.values())}")
        return Reply(protocol.dumps(content))

    def _check_ready(self) -> bool:
        if not self.is_ready:
            raise Refused(503, "the service ends", (b"retry-after", b"1"))
        return True

    async def _infer(self, model: ServedModel, headers: dict[bytes, bytes], body: _Body) -> Reply:
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind in _FILES:
            return await self._infer_file(model, _FILES[kind], headers, body)
        head, most = headers.get(b"inference-header-content-length"), MOST_JSON
        advice = ". Send the numbers in binary: 'Inference-Header-Content-Length'"
        if head is not None:
            most, advice = MOST_BODY, ". Send parts"
            if not head.isdigit() or int(head) > MOST_JSON:
                raise Refused(
                    400,
                    f"inference-header-content-length: expected 0 to {MOST_JSON}, found "
                    f"{head.decode('latin-1')!r:.40}",
                )
        content = await body.read(most, advice)
        if head is not None and int(head) > len(content):
            raise Refused(
                400,
                f"inference-header-content-length: expected at most the {len(content)} bytes of "
                f"the body, found {int(head)}",
            )
        size = len(content) if head is not None else 0
        asked = await self.beside(
            size, partial(protocol.asked, model, content, None if head is None else int(head))
        )
        values, notes = await self._compute(model, asked.rows)
        found = protocol.answer(model, asked, values, notes)
        reply = Reply(found.body, rows=len(asked.rows), is_warned=bool(notes))
        if found.head is None:
            return reply
        about = ((b"inference-header-content-length", b"%d" % found.head),)
        return replace(reply, kind="application/octet-stream", headers=about)

    async def _compute(self, model: ServedModel, rows: Any) -> Computed:
        if isinstance(rows, tables.TableRows) and len(rows) > tables.FEW_ROWS:
            make = partial(tables.features_of, model, rows.table)
            features, notes = await self.beside(_LARGE + 1, make)
            return (await self.turns.submit(model, features))[0], notes
        return await self.turns.submit(model, rows)

    async def _infer_file(
        self, model: ServedModel, kind: str, headers: dict[bytes, bytes], body: _Body
    ) -> Reply:
        """A table in, and the table of ``gradreduce predict`` out."""
        content = await body.read(MOST_BODY, ". Send parts")
        if model.recipe is None:
            raise Refused(
                415, f"{kind}: expected a tensor, since the model was not trained on a table"
            )
        to = headers.get(b"accept", b"").partition(b";")[0].strip().lower()
        out = _FILES.get(to, kind)
        predictor: Any = InTurns(model, self.turns, self._loop)
        work = partial(tables.answer_file, predictor, model, content, kind, out)
        found, notes, rows = await self.beside(_LARGE + 1, work)
        about = [(b"gradreduce-model-sha256", model.sha256.encode())]
        if notes:
            about.append((b"gradreduce-warnings", _ascii(notes)))
        return Reply(found, out, tuple(about), rows=rows, is_warned=bool(notes))


#: The paths that there are, and how an error shows them.
_PATHS = {
    **{path: path or "/" for path in page.FILES},
    **{path: path for path in ("/v2", "/v2/health/live", "/v2/health/ready")},
    **{path: path for path in ("/v2/repository/index", "/metrics")},
    "model": "/v2/models/NAME",
    "model/ready": "/v2/models/NAME/ready",
    "model/infer": "/v2/models/NAME/infer",
}


def _ascii(notes: list[str]) -> bytes:
    """Warnings as a header: a list of JSON in ASCII, of which long ones are cut."""
    return json.dumps([note[:500] for note in notes[:8]]).encode()


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
