"""Kerberos: the ticket that this user has, and its proof for a web server.

Everything is done by the system's ``libgssapi_krb5``, which hdfs-native loads as well. As ``kinit``
and Java, it finds its configuration by ``KRB5_CONFIG``, and the tickets by ``KRB5CCNAME``.
"""

import base64
import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from ctypes import byref
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hdfs_utils.atomic import replacing
from hdfs_utils.errors import KerberosError, TicketError

_LIBRARY = "libgssapi_krb5.so.2"

_INITIATE = 1
_MUTUAL = 2
_INDEFINITE = 0xFFFFFFFF

#: Where the major status of a call has its errors, and two of them.
_ERRORS = 0xFFFF0000
_NO_CREDENTIALS, _EXPIRED = 7 << 16, 11 << 16


class Ticket(NamedTuple):
    """A user's ticket: whose it is, and for how many seconds it is still valid."""

    principal: str
    seconds: int


class _Buffer(ctypes.Structure):
    _fields_ = (("length", ctypes.c_size_t), ("value", ctypes.c_void_p))


class _Oid(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint32), ("value", ctypes.c_char_p))


class _Oids(ctypes.Structure):
    _fields_ = (("count", ctypes.c_size_t), ("elements", ctypes.POINTER(_Oid)))


class _Entry(ctypes.Structure):
    _fields_ = (("key", ctypes.c_char_p), ("value", ctypes.c_char_p))


class _Store(ctypes.Structure):
    _fields_ = (("count", ctypes.c_uint32), ("elements", ctypes.POINTER(_Entry)))


def _oid(*numbers: int) -> _Oid:
    return _Oid(len(numbers), bytes(numbers))


_KRB5 = _oid(42, 134, 72, 134, 247, 18, 1, 2, 2)
_SPNEGO = _oid(43, 6, 1, 5, 5, 2)
#: Names such as ``HTTP@host``, and as ``user@REALM``.
_SERVICE = _oid(42, 134, 72, 134, 247, 18, 1, 2, 1, 4)
_PRINCIPAL = _oid(42, 134, 72, 134, 247, 18, 1, 2, 2, 1)


def ticket() -> Ticket:
    """The ticket of this process, or a KerberosError that says why there is none."""
    with _credential(None, {}) as credential:
        return _inquire(credential)


def obtain(principal: str, keytab: Path, cache: Path) -> Ticket:
    """Get a user's ticket by a key in a file, and put it in the place of those in another file.

    After an error the other file is as it was.
    """
    with replacing(cache) as temporary:
        store = {"client_keytab": f"FILE:{keytab}", "ccache": f"FILE:{temporary}"}
        with _credential(principal, store) as credential:
            return _inquire(credential)


def proof(host: str) -> str:
    """The value of a header ``Authorization`` for a web server that asks for SPNEGO."""
    context, token = ctypes.c_void_p(), _Buffer()
    with _name(f"HTTP@{host}", _SERVICE) as name:
        try:
            # With default credentials, lifetime and bindings, for the first message of a client.
            how = byref(_SPNEGO), _MUTUAL, 0, None, None, None
            _call("init_sec_context", None, byref(context), name, *how, byref(token), None, None)
            return f"Negotiate {base64.b64encode(_content(token)).decode()}"
        finally:
            if context:
                _call("delete_sec_context", byref(context), None)


def cache_name() -> str:
    """Where the tickets are, in words."""
    return os.environ.get("KRB5CCNAME", "").removeprefix("FILE:") or "the default ticket cache"


@cache
def _library() -> Any:
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise KerberosError(
            f"Kerberos needs the library {_LIBRARY}, which is not found: {error}. Install it (on "
            f"Debian or Ubuntu: apt-get install libgssapi-krb5-2)"
        ) from error


def _call(function: str, *arguments: Any) -> None:
    minor = ctypes.c_uint32()
    call = getattr(_library(), f"gss_{function}")
    call.restype = ctypes.c_uint32
    status = call(byref(minor), *arguments) & _ERRORS
    if not status:
        return
    raise refusal(_text(minor.value, 2) or _text(status, 1), status)


def refusal(said: str, status: int = 0) -> KerberosError:
    """The error that says what the library has said, and what to do about it."""
    if "Clock skew" in said or "not yet valid" in said:
        return TicketError(
            f"Kerberos: {said}: the clocks of this machine, where it is "
            f"{time.strftime('%H:%M:%S %Z')}, and of the KDC or the cluster are too far apart (as "
            f"a rule, by more than five minutes). Synchronise them by NTP (timedatectl shows "
            f"whether this one is), then get a new ticket: kinit"
        )
    if status == _EXPIRED or "Ticket expired" in said:
        what = f"the Kerberos ticket in {cache_name()} has expired, by this machine's clock"
    elif status == _NO_CREDENTIALS:
        what = f"there is no Kerberos ticket in {cache_name()}"
    else:
        return KerberosError(f"Kerberos: {said}")
    return TicketError(f"{what}. Get one: kinit (for a cluster of your own: gradreduce cluster up)")


def _text(status: int, kind: int) -> str:
    """What a status means; of a call's minor status (2), as Kerberos itself says it."""
    minor, more, text = ctypes.c_uint32(), ctypes.c_uint32(), _Buffer()
    how = ctypes.c_uint32(status), kind, byref(_KRB5)
    _library().gss_display_status(byref(minor), *how, byref(more), byref(text))
    return _content(text).decode(errors="replace").rstrip("\0")


def _content(buffer: _Buffer) -> bytes:
    """The bytes that a call has put into a buffer, which is released."""
    found = ctypes.string_at(buffer.value, buffer.length) if buffer.value else b""
    _library().gss_release_buffer(byref(ctypes.c_uint32()), byref(buffer))
    return found


@contextmanager
def _name(text: str, kind: _Oid) -> Iterator[ctypes.c_void_p]:
    name, content = ctypes.c_void_p(), ctypes.create_string_buffer(text.encode())
    buffer = _Buffer(len(content) - 1, ctypes.addressof(content))
    _call("import_name", byref(buffer), byref(kind), byref(name))
    try:
        yield name
    finally:
        _call("release_name", byref(name))


@contextmanager
def _credential(principal: str | None, store: dict[str, str]) -> Iterator[ctypes.c_void_p]:
    """A user's credential, of somebody and from a place if they are given."""
    entries = [_Entry(key.encode(), value.encode()) for key, value in store.items()]
    places = _Store(len(entries), (_Entry * len(entries))(*entries))
    mechanisms = _Oids(1, ctypes.pointer(_KRB5))
    credential = ctypes.c_void_p()
    how = ctypes.c_uint32(_INDEFINITE), byref(mechanisms), _INITIATE
    place = byref(places) if entries else None
    with _name(principal, _PRINCIPAL) if principal else nullcontext() as name:
        _call("acquire_cred_from", name, *how, place, byref(credential), None, None)
    try:
        yield credential
    finally:
        _call("release_cred", byref(credential))


def _inquire(credential: ctypes.c_void_p) -> Ticket:
    name, seconds, text = ctypes.c_void_p(), ctypes.c_uint32(), _Buffer()
    _call("inquire_cred", credential, byref(name), byref(seconds), None, None)
    try:
        _call("display_name", name, byref(text), None)
        return Ticket(_content(text).decode(), seconds.value)
    finally:
        _call("release_name", byref(name))
