"""Web servers that ask for SPNEGO: who asks them shows a ticket, to each of them its own."""

import http.server
import threading
import urllib.error

import pytest

import programs
from hdfs_utils import kerberos, web
from hdfs_utils.errors import KerberosError, TicketError


@pytest.fixture
def servers():
    """Two: the first sends those who prove themselves on to the second."""
    made, asked = [], []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            number, proof = self.server.number, self.headers.get("Authorization")
            asked.append((number, self.command, proof))
            if proof != f"Negotiate for 127.0.0.1 {len(asked) - 1}" or self.path == "/never":
                self.send_response(401)
                self.send_header("WWW-Authenticate", "Negotiate")
            elif number == 0 and self.command == "GET":
                self.send_response(307)
                self.send_header("Location", f"http://127.0.0.1:{made[1].server_port}/there")
            elif self.path == "/late":
                self.send_response(
                    403, "GSSException: (Mechanism level: Clock skew too great (37))"
                )
            else:
                self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_PUT = do_GET

        def log_message(self, *_):
            pass

    for number in range(2):
        made.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        made[-1].number = number
        threading.Thread(target=made[-1].serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{made[0].server_port}", asked
    for server in made:
        server.shutdown()
        server.server_close()


def test_each_server_has_a_proof_of_its_own(servers, monkeypatch):
    place, asked = servers
    monkeypatch.setattr(kerberos, "proof", lambda host: f"Negotiate for {host} {len(asked)}")
    with web.ask(f"{place}/here", programs.PATIENCE) as answer:
        assert answer.url.endswith("/there")
    assert [(number, bool(proof)) for number, _, proof in asked] == [
        (0, False),
        (0, True),
        (1, False),
        (1, True),
    ]
    web.ask(f"{place}/here", programs.PATIENCE, "PUT", b"content").close()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        web.ask(f"{place}/never", programs.PATIENCE)


def test_a_server_whose_clock_is_another(servers, monkeypatch):
    place, asked = servers
    monkeypatch.setattr(kerberos, "proof", lambda host: f"Negotiate for {host} {len(asked)}")
    with pytest.raises(TicketError, match=r"Clock skew too great .* Synchronise them by NTP"):
        web.ask(f"{place}/late", programs.PATIENCE, "PUT", b"content")


def test_without_a_ticket(servers, tmp_path, monkeypatch):
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/none")
    (tmp_path / "krb5.conf").write_text("[libdefaults]\ndefault_realm = EXAMPLE.COM\n")
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    expected = f"there is no Kerberos ticket in {tmp_path}/none. Get one: kinit"
    with pytest.raises(KerberosError, match=expected):
        web.ask(f"{servers[0]}/here", programs.PATIENCE)
    with pytest.raises(KerberosError, match=expected):
        kerberos.ticket()
    with pytest.raises(KerberosError, match="no Kerberos ticket"):
        kerberos.obtain("somebody", tmp_path / "keytab", tmp_path / "none")


def test_without_the_library(monkeypatch):
    monkeypatch.setattr(kerberos, "_LIBRARY", "libnowhere.so.2")
    kerberos._library.cache_clear()
    with pytest.raises(KerberosError, match=r"libnowhere.so.2.*apt-get install libgssapi-krb5-2"):
        kerberos.ticket()
    kerberos._library.cache_clear()
