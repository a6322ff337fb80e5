"""Servers for tests, on loopback, without persistence: `./dev servers start|stop|status [redis]`.

Tests import `redis_url()`, the one server of a run, and `redis_server(...)`, one more with settings of its own:

    with redis_server("--requirepass", "secret") as server:
        Soloist(f"redis://:secret@127.0.0.1:{server.port}")
        server.stop()
        server.start()          # the same port, and empty: nothing is kept

1. A server that a `with` started ends with it; when this process is killed, a watchdog ends it.
2. A server that `start` started is ours to stop only while its pid belongs to the process that we started.
3. What can't be had is `tools.binaries.ServerNotHadError` with the reason; the tests' fixtures make it a skip that begins with NO_SERVER.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tools.binaries import ServerNotHadError, cache, find_redis

ROOT = Path(__file__).resolve().parent.parent
URL = "SOLOIST_TEST_REDIS_URL"  # the tests use this server
MISSING = "SOLOIST_TEST_REDIS_MISSING"  # why there is none: whoever started us has tried
NO_SERVER = "no server: "
STARTS_WITHIN = 20.0  # seconds; a busy machine may need some
QUIET = ("--save", "", "--appendonly", "no", "--daemonize", "no")


class RedisServer:
    """One server. It can be stopped and started again, on the same port and empty."""

    def __init__(self, *settings: str) -> None:
        self.binary = find_redis()
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="soloist-redis-"))
        self.unix_path = self.folder / "socket"
        self.settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of its first database, without a password."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """The running server's."""
        assert self._process is not None, "the server is stopped"
        return self._process.pid

    def start(self, *, watched: bool = True) -> None:
        """Start, and return when it answers."""
        assert self._process is None, "the server runs already"
        where = ("--bind", "127.0.0.1", "--port", str(self.port), "--unixsocket", str(self.unix_path), "--dir", str(self.folder))
        log = self.folder / "log"
        with log.open("wb") as output:
            command = [str(self.binary), *where, *QUIET, *self.settings]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
        if watched:
            self._watchdog = watchdog(self._process.pid)
        ends = time.monotonic() + STARTS_WITHIN
        while not answers(self.port):
            if self._process.poll() is not None or time.monotonic() > ends:
                said = log.read_text(errors="replace").strip().splitlines()
                self.stop()
                raise ServerNotHadError(f"{self.binary.name} did not start: {said[-1] if said else 'it said nothing'}")
            time.sleep(0.01)

    def stop(self) -> None:
        """End it, running or stalled; what it held is gone. Without effect on a stopped one."""
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.communicate()
        if self._process is not None:
            self._process.kill()  # nothing is to be saved
            self._process.wait()
        self._process = self._watchdog = None

    def close(self) -> None:
        """Stop it for good."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def redis_server(*settings: str) -> Generator[RedisServer]:
    """A server of one's own; `settings` as on its command line, such as "--requirepass", "secret"."""
    server = RedisServer(*settings)
    try:
        server.start()
        yield server
    finally:
        server.close()


@contextmanager
def redis_url() -> Generator[str]:
    """The URL of the server that this run's tests share: a given one, else one that ends with the `with`."""
    if given := os.environ.get(URL):
        yield given
        return
    if reason := os.environ.get(MISSING):
        raise ServerNotHadError(reason)
    with redis_server() as server:
        yield server.url


def answers(port: int) -> bool:
    """Whether a Redis speaks on this port; that it asks for a password is an answer, too, that it still loads is none."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            reply = connection.recv(64)
    except OSError:
        return False
    return reply.startswith((b"+PONG", b"-NOAUTH"))


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def watchdog(pid: int) -> "subprocess.Popen[bytes]":
    """A process that kills `pid` when we are gone: it reads a pipe whose other end is ours."""
    script = 'read -r _; kill -9 "$1"'
    return subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", str(pid)], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )


def state_file() -> Path:
    """Where `start` notes what it started."""
    folder = ROOT / ".servers"
    writable = os.access(folder if folder.exists() else ROOT, os.W_OK)
    return (folder if writable else cache() / "servers") / "redis.json"


def born(pid: int) -> str | None:
    """When this process began; together with the pid it names a process for good. None: there is none."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return None
        told = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return told.stdout.strip() or None
    return None if after_name[0] == "Z" else after_name[19]


def running() -> dict[str, str] | None:
    """What `start` started, if that very process still runs."""
    try:
        noted: dict[str, str] = json.loads(state_file().read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return noted if born(int(noted["pid"])) == noted["born"] else None


def start() -> str:
    """Start the server that stays until `stop`, unless it runs; its URL."""
    if noted := running():
        return noted["url"]
    server = RedisServer()
    try:
        server.start(watched=False)
    except ServerNotHadError:
        server.close()
        raise
    facts = {
        "url": server.url,
        "pid": str(server.pid),
        "born": born(server.pid),
        "binary": str(server.binary),
        "folder": str(server.folder),
    }
    state_file().parent.mkdir(parents=True, exist_ok=True)
    state_file().write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return server.url


def stop() -> bool:
    """Stop it; False if it doesn't run."""
    noted = running()
    if noted:
        with suppress(ProcessLookupError):
            os.kill(int(noted["pid"]), signal.SIGKILL)
        while born(int(noted["pid"])) == noted["born"]:
            time.sleep(0.01)
        shutil.rmtree(noted["folder"], ignore_errors=True)
    state_file().unlink(missing_ok=True)
    return noted is not None


def main(arguments: Sequence[str]) -> int:
    """`start`, `stop` or `status`; the status is 1 when nothing runs."""
    if not arguments or arguments[0] not in {"start", "stop", "status"} or list(arguments[1:]) not in ([], ["redis"]):
        print("usage: ./dev servers start|stop|status [redis]", file=sys.stderr)
        return 2
    if arguments[0] == "start":
        try:
            print(f"redis: {start()}\n\nexport {URL}={start()}   # the tests then use it")
        except ServerNotHadError as error:
            print(f"redis: {error}", file=sys.stderr)
            return 1
        return 0
    if arguments[0] == "stop":
        print("redis: stopped" if stop() else "redis: was not running")
        return 0
    noted = running()
    print(f"redis: {noted['url']}, pid {noted['pid']}, {noted['binary']}" if noted else "redis: not running")
    return 0 if noted else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
