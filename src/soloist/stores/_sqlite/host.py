"""What this host says of itself: its clocks, and what kind of place a path is. SQLite isn't asked here.

Leases of running holds are counted from a boot of the host, so all that share a file must mean the same boot by it, and
what lies on a network may be shared with another host.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from soloist._world import boottime
from soloist.errors import ConfigError

MOUNTS = Path("/proc/self/mountinfo")

NETWORKS = "9p afs beegfs ceph cifs coda fuse gfs2 glusterfs gpfs lustre nfs nfs4 ocfs2 orangefs prl_fs smb3 smbfs vboxsf virtiofs"
REMOTE = frozenset(NETWORKS.split())
LOCAL_FUSE = frozenset({"fuse.bindfs", "fuse.encfs", "fuse.fuse-overlayfs", "fuse.gocryptfs", "fuse.mergerfs"})
"""Any other file system in user space may be a network's."""


NAMES = "write sqlite:///relative.db or sqlite:////absolute.db, with # as %23 and ? as %3F"


@dataclass(frozen=True, slots=True)
class Clocks:
    """Wall time; the clock that goes on while the machine sleeps; and the boot that this one counts from, '' to go by wall time alone."""

    wall: Callable[[], float]
    up: Callable[[], float]
    boot: str


def host_clocks(proc: Path = Path("/proc")) -> Clocks:
    """The clocks that all processes of this host share, whatever container they run in.

    LXC and nspawn give a container a boot id of its own, by a mount: its processes would take the others' running holds for
    those of an earlier boot. They go by wall time, as does a host that isn't Linux. In a time namespace the clock is shifted.
    """
    masked = any(point == "/proc/sys/kernel/random/boot_id" for point, _ in mount_points(text(proc / "self/mountinfo")))
    boot = "" if masked or sys.platform != "linux" else text(proc / "sys/kernel/random/boot_id").strip()
    shift = sum(
        int(seconds) + int(nanoseconds) / 1e9
        for clock, seconds, nanoseconds in map(str.split, text(proc / "self/timens_offsets").splitlines())
        if clock == "boottime"
    )
    return Clocks(time.time, (lambda: boottime() - shift) if shift else boottime, boot)


def parse(url: str) -> tuple[str, Path | None]:
    """The path that a URL names, and where to read what is mounted; None if it may lie on a network."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"this sqlite:// URL can't be read: {NAMES}") from error
    path, options = unquote(parts.path[1:], errors="surrogateescape"), parse_qs(parts.query, keep_blank_values=True)
    if ":memory:" in (parts.netloc, path):
        raise ConfigError("sqlite:// without a file would be another database for each process, and exclude nobody: use memory://")
    if not url.lower().startswith("sqlite:///") or parts.fragment or path in ("", "/") or "\0" in path:
        raise ConfigError(f"this sqlite:// URL names no file of this host: {NAMES}")
    allowed = options.pop("allow_network_fs", ["0"])
    if options or allowed not in (["0"], ["1"]):
        wrong = ", ".join(options) or "another value of it"
        raise ConfigError(f"an sqlite:// URL takes the option allow_network_fs=1, not {wrong}: settings don't go into a URL")
    return path, None if allowed == ["1"] else MOUNTS


def refused(path: str, mounts: str) -> str | None:
    """Why no database may lie there, by the text of /proc/self/mountinfo; None if it may."""
    real = os.path.realpath(path)
    point, kind = max(
        ((point, kind) for point, kind in mount_points(mounts) if real == point or real.startswith(point.rstrip("/") + "/")),
        key=lambda mount: len(mount[0]),
        default=("", ""),
    )
    if kind in REMOTE or (kind.startswith("fuse.") and kind not in LOCAL_FUSE):
        return (
            f"{path!r} lies on a network file system ({kind} on {point!r}), where other hosts' locks and memory can't be trusted: "
            "use a disk of this host, or a server. If this host alone uses the file, add ?allow_network_fs=1"
        )
    if point == real:
        return f"{path!r} is a mount of its own, and the files that SQLite makes beside it aren't in it: mount its directory"
    return None


def mount_points(mounts: str) -> Iterator[tuple[str, str]]:
    """Where something is mounted, and what kind of file system; the latest first, since it hides the others."""
    for line in reversed(mounts.splitlines()):
        mount, _, source = line.partition(" - ")
        yield re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), mount.split(" ")[4]), source.split(" ")[0]


def unusable(path: str) -> str | None:
    """Why this user can't have a database there, None if it looks as if they could."""
    file, directory = Path(path), Path(path).parent
    if not directory.is_dir():
        return f"there is no directory {str(directory)!r}: make it, or use another path"
    if file.exists() and not file.is_file():
        return f"{path!r} is no file: use another path"
    if not os.access(directory, os.W_OK | os.X_OK):
        return (
            f"this user may not write in {str(directory)!r}, where SQLite makes files beside {file.name!r}: permit it, or use another path"
        )
    if file.exists() and not os.access(path, os.R_OK | os.W_OK):
        return f"this user may not read and write {path!r}: permit it, or use another path"
    return None


def text(file: Path) -> str:
    """What a file of /proc says; nothing where there is none."""
    try:
        return file.read_text("utf-8", "surrogateescape")
    except OSError:
        return ""
