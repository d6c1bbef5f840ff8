"""Kerberos for a cluster: a KDC of its own, keys, tickets, and certificates for the web servers.

All of it is in the cluster's folder, which nobody else may look into; nothing is changed elsewhere.
The KDC has new keys whenever it starts, so that older tickets are worth nothing then. All daemons
have one principal, which is the user who started the cluster by another name.
"""

import getpass
import os
import platform
import secrets
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hdfs_utils import kerberos
from hdfs_utils.atomic import replace, storage_errors
from hdfs_utils.cluster import artifacts
from hdfs_utils.cluster.artifacts import Progress, exclusive
from hdfs_utils.cluster.layout import LOOPBACK, MOST_NODES, PORTS, Cluster
from hdfs_utils.errors import DaemonError, KerberosError, RequirementError

REALM = "EXAMPLE.COM"

#: Somebody else, who has no rights on the cluster.
GUEST = "guest"

_SERVICE = f"hadoop/localhost@{REALM}"
_PREFIX = "kerberos-"
_SECONDS = 60

#: What Java calls the machines that have a library of Hadoop.
_MACHINES = {"x86_64": "amd64", "aarch64": "aarch64", "ppc64le": "ppc64le"}


def assemble(progress: Progress) -> Path:
    """Download what Kerberos needs beside Hadoop, as :func:`artifacts.assemble`."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        raise RequirementError(
            f"a cluster with Kerberos needs Hadoop's library for {platform.machine()}, and there "
            f"is one for {', '.join(_MACHINES)} only. Start one without: gradreduce cluster up"
        )
    folder = artifacts.assemble(progress, _PREFIX)
    library = folder / "native" / "libhadoop.so"
    with exclusive(artifacts.cache() / "lock"), storage_errors("create", library):
        if not library.exists():
            (jar,) = (folder / "lib").glob("hadoop-apache-*.jar")
            library.parent.mkdir(exist_ok=True)
            with zipfile.ZipFile(jar) as opened:
                replace(library, opened.read(f"nativelib/Linux-{machine}/libhadoop.so"))
    return folder


def port(cluster: Cluster) -> int:
    """The KDC's port."""
    return cluster.port + PORTS - 1


def class_path(cluster: Cluster) -> str:
    """The KDC's jars."""
    assert cluster.kerberos
    names = [
        name for name in artifacts.locked_jars(_PREFIX) if not name.startswith("hadoop-apache")
    ]
    return os.pathsep.join(str(cluster.kerberos / "lib" / name) for name in sorted(names))


def arguments(cluster: Cluster) -> tuple[str, ...]:
    """What the KDC is told: where it works, and whom it knows."""
    places = [cluster.folder / "tmp", cluster.secrets / "kdc.properties", _keytab(cluster)]
    addresses = [LOOPBACK, *map(cluster.node_address, range(1, MOST_NODES + 1))]
    services = [_SERVICE.partition("@")[0], *(f"HTTP/{host}" for host in ("localhost", *addresses))]
    return *map(str, places), getpass.getuser(), GUEST, *services


def jvm_options(cluster: Cluster) -> list[str]:
    """Options of every virtual machine."""
    if not cluster.kerberos:
        return []
    return [
        f"-Djava.security.krb5.conf={cluster.secrets / 'krb5.conf'}",
        f"-Djava.library.path={cluster.kerberos / 'native'}",
    ]


def write(cluster: Cluster) -> None:
    """Write Kerberos's configuration, a secret for cookies, and certificates, if there are none."""
    folder = cluster.secrets
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "kdc.properties").write_text(
        f"org.name={REALM.partition('.')[0]}\norg.domain={REALM.partition('.')[2]}\n"
        f"kdc.bind.address={LOOPBACK}\nkdc.port={port(cluster)}\ntransport=TCP\ndebug=false\n"
        f"instance=gradreduce\nmax.ticket.lifetime={24 * 3600 * 1000}\n"
        f"max.renewable.lifetime={7 * 24 * 3600 * 1000}\nmin.ticket.lifetime=0\n"
    )
    (folder / "krb5.conf").write_text(
        f"[libdefaults]\ndefault_realm = {REALM}\nudp_preference_limit = 1\n"
        "ticket_lifetime = 24h\ndns_canonicalize_hostname = false\nrdns = false\n"
        f"dns_lookup_kdc = false\ndns_lookup_realm = false\n[realms]\n{REALM} = {{\n"
        f"kdc = {LOOPBACK}:{port(cluster)}\n}}\n"
    )
    secret = folder / "cookies"
    if not secret.exists():
        secret.write_text(secrets.token_hex(32))
    if not (folder / "certificate.pem").exists():
        _make_certificate(cluster)


def _make_certificate(cluster: Cluster) -> None:
    names = ["localhost", *map(cluster.node_name, range(1, MOST_NODES + 1))]
    addresses = [LOOPBACK, *map(cluster.node_address, range(1, MOST_NODES + 1))]
    valid = [*(f"dns:{name}" for name in names), *(f"ip:{address}" for address in addresses)]
    keys = cluster.secrets / "keys.p12"
    keys.unlink(missing_ok=True)
    tool = [str(cluster.java_home / "bin" / "keytool"), "-noprompt"]
    tool += ["-storetype", "PKCS12", "-storepass", _password(cluster), "-alias", "web"]
    certificate = str(cluster.secrets / "certificate.pem")
    made = ["-genkeypair", "-keystore", str(keys), "-dname", "CN=localhost", "-keyalg", "RSA"]
    made += ["-validity", "3650", "-ext", f"san={','.join(valid)}"]
    for command in (
        [*tool, *made],
        [*tool, "-exportcert", "-rfc", "-keystore", str(keys), "-file", certificate],
    ):
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stdout", None) or str(error).encode()
            raise DaemonError(
                f"{tool[0]} made no certificate: {said.decode(errors='replace').strip()}"
            ) from error


def _password(cluster: Cluster) -> str:
    """Of the keys, which lie beside it."""
    return (cluster.secrets / "cookies").read_text()


def _keytab(cluster: Cluster) -> Path:
    return cluster.secrets / "keytab"


def settings(cluster: Cluster) -> dict[str, dict[str, object]]:
    """What Kerberos changes in the files of the configuration."""
    user, keytab, password = getpass.getuser(), _keytab(cluster), _password(cluster)
    web = "hadoop.http.authentication"

    def service(prefix: str, key: str = "keytab", name: str = "principal") -> dict[str, object]:
        return {f"{prefix}.{name}": _SERVICE, f"{prefix}.{key}": keytab}

    def store(kind: str) -> dict[str, object]:
        place = {"location": cluster.secrets / "keys.p12", "type": "PKCS12", "password": password}
        return {f"ssl.{kind}.{key}": value for key, value in place.items()}

    return {
        "core-site.xml": {
            "hadoop.security.authentication": "kerberos",
            "hadoop.rpc.protection": "privacy",
            "hadoop.security.auth_to_local": (
                f"RULE:[2:$1@$0](hadoop@{REALM})s/.*/{user}/\nDEFAULT"
            ),
            "hadoop.http.filter.initializers": (
                "org.apache.hadoop.security.AuthenticationFilterInitializer"
            ),
            f"{web}.type": "kerberos",
            f"{web}.simple.anonymous.allowed": False,
            f"{web}.kerberos.principal": "*",
            f"{web}.kerberos.keytab": keytab,
            f"{web}.signature.secret.file": cluster.secrets / "cookies",
        },
        "hdfs-site.xml": {
            **service("dfs.namenode", "keytab.file", "kerberos.principal"),
            **service("dfs.datanode", "keytab.file", "kerberos.principal"),
            **service("dfs.journalnode", "keytab.file", "kerberos.principal"),
            "dfs.web.authentication.kerberos.principal": "*",
            "dfs.web.authentication.kerberos.keytab": keytab,
            "dfs.block.access.token.enable": True,
            "dfs.data.transfer.protection": "privacy",
            "dfs.http.policy": "HTTPS_ONLY",
        },
        "yarn-site.xml": {
            **service("yarn.resourcemanager"),
            **service("yarn.nodemanager"),
            "yarn.http.policy": "HTTPS_ONLY",
            "yarn.acl.enable": True,
            "yarn.admin.acl": user,
        },
        # By default everybody may end everybody's applications.
        "capacity-scheduler.xml": {"yarn.scheduler.capacity.root.acl_administer_queue": user},
        "mapred-site.xml": {
            **service("mapreduce.jobhistory"),
            "mapreduce.jobhistory.http.policy": "HTTPS_ONLY",
            "mapreduce.cluster.acls.enabled": True,
        },
        "ssl-server.xml": {**store("server.keystore"), "ssl.server.keystore.keypassword": password}
        | store("server.truststore"),
        "ssl-client.xml": store("client.truststore"),
    }


def is_ready(cluster: Cluster, since: float) -> bool:
    """Whether the KDC that was started at a time, in seconds of the epoch, gives tickets."""
    try:
        return _keytab(cluster).stat().st_mtime >= since and bool(renew(cluster))
    except (OSError, KerberosError):
        return False


def renew(cluster: Cluster) -> kerberos.Ticket:
    """Get a new ticket for the user."""
    return ticket(cluster, getpass.getuser(), cluster.secrets / "ticket")


def ticket(cluster: Cluster, principal: str, cache: Path) -> kerberos.Ticket:
    """Put a ticket of one of the cluster's principals into a file."""
    with as_its_user(cluster):
        return kerberos.obtain(principal, _keytab(cluster), cache)


@contextmanager
def as_its_user(cluster: Cluster) -> Iterator[None]:
    """Use the cluster's ticket, whatever the environment says."""
    ours = cluster.ticket_environment()
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
