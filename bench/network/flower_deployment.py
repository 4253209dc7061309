"""A SuperLink and SuperNodes on this machine, with TLS and known keys, for tests and measurements.

The processes are Flower's own, started by the commands of docs/flower.md. Everything listens on 127.0.0.1,
unless a subclass places the processes elsewhere; keys, certificates, logs and Flower's home (`FLWR_HOME`) are
in one folder.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from fdro_core.engines.flower_ import package
from fdro_core.errors import ClusterUnreachable

CONNECTION = "hospitals"
START = 60.0  # seconds that a process may take until it serves


class Deployment:
    """The processes of one SuperLink and its SuperNodes; see `deployed`.

    Attributes:
        folder: keys, certificates, logs and Flower's home.
        address: at which the SuperLink listens.
        port: of the SuperLink.
        processes: by name: "superlink", "node0", "node1", ...
    """

    start_limit = START

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        package.load()
        self.folder, self.address = folder, address
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.port = _free_port()
        tools = str(Path(sys.executable).parent)
        self.environment = os.environ | {
            "FLWR_HOME": str(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",  # seconds; 1 by default, for every message
            "PATH": os.pathsep.join([tools, os.environ.get("PATH", "")]),
        }
        write_certificates(folder, address)
        (folder / "home").mkdir()
        (folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "{address}:{self.port}"\nroot-certificates = "{folder / "ca.crt"}"\n',
            encoding="utf-8",
        )

    def start_superlink(self) -> None:
        """Start the SuperLink and wait until it serves."""
        self._start(
            "superlink", "flower-superlink", "--host", self.address, "--port", str(self.port),
            "--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.crt", "--ssl-keyfile", "server.key",
            "--enable-supernode-auth",
        )  # fmt: skip
        end = monotonic() + self.start_limit
        while not self._serves():
            if monotonic() > end or self.processes["superlink"].poll() is not None:
                raise ClusterUnreachable(f"the SuperLink does not start: {self.log('superlink')[-2000:]}")
            sleep(0.1)

    def register(self, node: int) -> None:
        """Make the key of a node, and make it known to the SuperLink."""
        write_node_key(self.folder, f"node{node}")
        self.flwr("supernode", "register", f"node{node}.pub", CONNECTION)

    def start_node(self, node: int, config: str = "") -> None:
        """Start a SuperNode; by default it is the worker of its number."""
        self._start(
            f"node{node}", "flower-supernode", "--superlink", f"{self.address}:{self.port}",
            "--root-certificates", "ca.crt", "--auth-supernode-private-key", f"node{node}",
            "--host", "127.0.0.1", "--port", str(_free_port()), "--node-config", config or f"worker={node}",
        )  # fmt: skip

    def _in_place(self, name: str, command: list[str]) -> list[str]:
        """Return the command that runs another one where the process of that name belongs."""
        return command

    def _serves(self) -> bool:
        """Whether the SuperLink listens."""
        return _listens(self.address, self.port)

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self._in_place(name, list(command)), cwd=self.folder, env=self.environment,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def run(self, app: Path, config: Mapping[str, Any], output: Any = None) -> subprocess.Popen[str]:
        """Start `flwr run`; what it prints, the run's log, goes to a file or is the process's `stdout`."""
        values = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())  # as in TOML
        command = ["flwr", "run", str(app), CONNECTION, "--stream", "--run-config", values]
        return subprocess.Popen(
            self._in_place("superlink", command), cwd=self.folder, env=self.environment, text=True,
            stdout=subprocess.PIPE if output is None else output, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def flwr(self, *arguments: str) -> str:
        """Run a command of `flwr` and return what it prints."""
        done = subprocess.run(
            self._in_place("superlink", ["flwr", *arguments]),
            cwd=self.folder,
            env=self.environment,
            text=True,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise ClusterUnreachable(f"flwr {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def kill(self, name: str) -> None:
        """Kill a process and the processes it started, at once."""
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):  # it ended by itself
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def log(self, name: str) -> str:
        """Return what a process has printed, without colours."""
        return plain_text((self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace"))


@contextmanager
def deployed(folder: Path, nodes: int) -> Iterator[Deployment]:
    """Start a SuperLink with some SuperNodes; end all of them at the end."""
    deployment = Deployment(folder)
    try:
        deployment.start_superlink()
        for node in range(nodes):
            deployment.register(node)
            deployment.start_node(node)
        yield deployment
    finally:
        for name in list(deployment.processes):
            deployment.kill(name)


def plain_text(text: str) -> str:
    """Return a log without the codes of colours.

    >>> plain_text("\\x1b[92mINFO\\x1b[0m: ready")
    'INFO: ready'
    """
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def write_certificates(folder: Path, address: str = "127.0.0.1") -> None:
    """Write ca.crt, and server.crt and server.key for an address, as docs/flower.md does with openssl."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.now(datetime.UTC)

    def certificate(subject: str, key: Any, issuer: str, signer: Any, extension: Any, critical: bool) -> Any:
        named = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (subject, issuer)]
        built = x509.CertificateBuilder().subject_name(named[0]).issuer_name(named[1])
        built = built.public_key(key.public_key()).serial_number(x509.random_serial_number())
        built = built.not_valid_before(now - datetime.timedelta(days=1))
        built = built.not_valid_after(now + datetime.timedelta(days=30))
        identified = built.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        return (
            identified.add_extension(authority, False)
            .add_extension(extension, critical)
            .sign(signer, hashes.SHA256())
        )

    ca, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = certificate("fdro CA", ca, "fdro CA", ca, x509.BasicConstraints(True, None), True)
    addresses = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address(address))])
    _write_pem(folder / "ca.crt", authority)
    _write_pem(folder / "server.crt", certificate("superlink", server, "fdro CA", ca, addresses, False))
    _write_key(folder / "server.key", server, "PKCS8")


def write_node_key(folder: Path, name: str) -> None:
    """Write a key for a SuperNode and its public half, as `ssh-keygen -t ecdsa -b 384` does."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    _write_key(folder / name, key, "OpenSSH")
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / f"{name}.pub").write_bytes(public + b"\n")


def _write_pem(path: Path, certificate: Any) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding

    path.write_bytes(certificate.public_bytes(Encoding.PEM))


def _write_key(path: Path, key: Any, form: str) -> None:
    from cryptography.hazmat.primitives import serialization

    pem = key.private_bytes(
        serialization.Encoding.PEM, getattr(serialization.PrivateFormat, form), serialization.NoEncryption()
    )
    path.touch(mode=0o600)
    path.write_bytes(pem)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((address, port)) == 0
