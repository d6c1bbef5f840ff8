"""The page at ``/``: fixed files that say nothing of the models, and so need no token.

The script of the page asks the service as any other client does.
"""

from importlib.resources import files


def _content(*names: str) -> bytes:
    return b"".join(files("mapreduce").joinpath(name).read_bytes() for name in names)


#: Content and type of each file, by its path without a slash at the end.
FILES = {
    "": (_content("serving/page.html"), b"text/html; charset=utf-8"),
    "/page.js": (_content("serving/page.js"), b"text/javascript; charset=utf-8"),
    # Colours, cards and tables are those of a report.
    "/page.css": (_content("report/page.css", "serving/page.css"), b"text/css; charset=utf-8"),
}
_POLICY = b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
_POLICY += b"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
#: The browser runs the script of the page alone, which reaches this service alone.
HEADERS = ((b"content-security-policy", _POLICY), (b"x-content-type-options", b"nosniff"))
