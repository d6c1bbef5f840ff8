"""The address by which the other ranks of a gang reach a rank."""

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
from urllib.parse import urlsplit

from mapreduce.errors import UsageError
from mapreduce.support.traits import BY_INTERFACE, BY_RUNNER, REACH

#: A port to ask the route to. Nothing is sent there.
_ANY_PORT = 9

#: An address that nobody has (RFC 5737): the way there is the default route.
_NOBODY = "192.0.2.1"

#: Linux's call for the address of an interface, and the size of its argument.
_SIOCGIFADDR, _IFREQ = 0x8915, 40


def settled(reach: str) -> str:
    """A reach, or the one that the runner has given this task."""
    return os.environ.get(REACH, "") if reach == BY_RUNNER else reach


def own_address(reach: str, interface: str = "") -> str:
    """The address of this machine for the other ranks.

    ``reach``: See :meth:`mapreduce.support.traits.Traits.reach`.
    ``interface``: The interface to take: its name, or a network, as ``10.0.0.0/8``.

    Raises UsageError (no interface, or several ones, are of that description).
    """
    if not reach:
        return "127.0.0.1"
    if reach != BY_INTERFACE:
        parts = urlsplit(f"//{reach}")
        return _address_towards(parts.hostname or "", parts.port or _ANY_PORT)
    found = addresses()
    if interface:
        fitting = _fitting(found, interface)
    else:
        with contextlib.suppress(OSError):
            return _address_towards(_NOBODY, _ANY_PORT)
        fitting = [each for each in found.values() if not each.startswith("127.")]
    if len(fitting) == 1:
        return fitting[0]
    known = ", ".join(f"{name} {address}" for name, address in found.items()) or "none"
    option = f"--interface {interface}" if interface else "--interface"
    raise UsageError(
        f"{option}: expected the name of an interface of {socket.gethostname()}, or a network such "
        f"as 10.0.0.0/8 that one of its addresses is in, found {known}"
    )


def addresses() -> dict[str, str]:
    """The addresses (IPv4) of this machine, by the names of its interfaces."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            request = struct.pack(f"{_IFREQ}s", name.encode())
            # Not every interface has an address.
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(asked, _SIOCGIFADDR, request)
                found[name] = socket.inet_ntoa(answer[20:24])
    return found


def _fitting(found: dict[str, str], interface: str) -> list[str]:
    if interface in found:
        return [found[interface]]
    try:
        network = ipaddress.ip_network(interface, strict=False)
    except ValueError:
        return []
    return [each for each in found.values() if ipaddress.ip_address(each) in network]


def _address_towards(host: str, port: int) -> str:
    """The address of this machine on the way to a host, to which nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))
        address: str = probe.getsockname()[0]
    return address
