"""Requests to the web servers of a Hadoop, by SPNEGO to those that want to know who asks."""

import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from hdfs_utils import kerberos

#: Servers that a request may be sent on to.
_REDIRECTIONS = 5


class _Stay(urllib.request.HTTPRedirectHandler):
    """Redirections are followed one by one: each server wants a proof of its own."""

    def redirect_request(self, *_: Any) -> None:
        return None


def ask(
    url: str,
    seconds: float,
    method: str = "GET",
    content: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    certificate: Path | None = None,
) -> Any:
    """Open a URL, with a proof of the user's ticket where the server asks for one.

    ``certificate`` is of the authority whose servers are trusted; else the system's, or that of
    ``SSL_CERT_FILE``. Raises OSError (``urllib.error.HTTPError``, if the server answers),
    KerberosError (there is no valid ticket for it, or it does not accept it).
    """
    given = {**(headers or {})}
    for _ in range(2 * _REDIRECTIONS):
        request = urllib.request.Request(url, content, given, method=method)  # noqa: S310
        try:
            opener = _opener(url.startswith("https:"), certificate)
            return opener.open(request, timeout=seconds)
        except urllib.error.HTTPError as error:
            asks = "negotiate" in (error.headers.get("WWW-Authenticate") or "").lower()
            place = error.headers.get("Location")
            if error.code == 401 and asks and "Authorization" not in given:
                error.close()
                given["Authorization"] = kerberos.proof(urlsplit(url).hostname or "")
            elif error.code in (301, 302, 303, 307, 308) and place and method == "GET":
                error.close()
                given.pop("Authorization", None)
                url = urljoin(url, place)
            elif "GSSException" in str(error.reason):
                error.close()
                raise kerberos.refusal(error.reason) from error
            else:
                raise
    raise OSError(f"{url} redirects too often")


@cache
def _opener(secure: bool, certificate: Path | None) -> urllib.request.OpenerDirector:
    # Proxies of the environment are for other machines.
    handlers: list[Any] = [urllib.request.ProxyHandler({}), _Stay]
    if secure:
        trusted = ssl.create_default_context(cafile=certificate)
        handlers.append(urllib.request.HTTPSHandler(context=trusted))
    return urllib.request.build_opener(*handlers)
