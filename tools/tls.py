"""TLS before a server that speaks none: a relay with a certificate of its own authority, for tests.

    with redis_server() as server, tls_relay(server.port) as relay:
        Soloist(f"rediss://127.0.0.1:{relay.port}/0?ssl_ca_certs={relay.authority}")

The servers in wheels are built without TLS; what the client does is the same, whoever ends its TLS. The relay is a
process of its own, `python -m tools.tls FOLDER PORT`: it prints its port, and ends when its standard input does.
"""

import asyncio
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tools.binaries import ServerNotHadError
from tools.lint import ROOT

CHUNK = 65536
NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


@dataclass(frozen=True, slots=True)
class Relay:
    """Where it listens, and the certificate that its clients must trust."""

    port: int
    authority: Path


@contextmanager
def tls_relay(port: int) -> Generator[Relay]:
    """A relay on a free loopback port, which speaks TLS to its clients and plainly to `port`."""
    with tempfile.TemporaryDirectory(prefix="soloist-tls-") as folder:
        certify(Path(folder))
        command = [sys.executable, "-m", "tools.tls", folder, str(port)]
        relay = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert relay.stdout is not None
        try:
            yield Relay(int(relay.stdout.readline()), Path(folder) / "ca.crt")
        finally:
            relay.kill()
            relay.communicate()


async def serve(folder: Path, port: int) -> None:
    """Relay until our standard input ends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))
        writer.close()

    listening = await asyncio.start_server(meet, "127.0.0.1", 0, ssl=context)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes, until one side ends; then end the other."""
    with suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


def certify(folder: Path) -> None:
    """Make an authority and a certificate of it for the loopback, by openssl."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise ServerNotHadError("TLS needs the program openssl to make a certificate")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    (folder / "names").write_text(NAMES, encoding="utf-8")
    sign = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
    for step in (
        ("req", "-x509", *key, "-days", "2", "-subj", "/CN=soloist-tests", "-keyout", "ca.key", "-out", "ca.crt"),
        ("req", *key, "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr"),
        ("x509", "-req", "-in", "server.csr", *sign, "-days", "2", "-out", "server.crt"),
    ):
        subprocess.run([openssl, *step], cwd=folder, check=True, capture_output=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
