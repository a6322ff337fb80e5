"""A file, a host whose clocks are set by hand, and processes of their own: what the tests of SQLite stand on."""

import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing

from soloist._world import run
from soloist.contract import Grant
from soloist.stores import sqlite
from soloist.stores._sqlite.file import DatabaseFile
from soloist.stores._sqlite.host import Clocks

MOUNTS = """\
22 28 0:21 / /proc rw,relatime shared:5 - proc proc rw
28 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 28 0:40 / /srv/team\\040files rw,relatime shared:9 - nfs4 filer:/team rw,vers=4.2
32 28 0:41 / /mnt/me/drive rw,nosuid - fuse.sshfs me@far: rw
33 28 0:42 / /var/lib/layers rw - fuse.fuse-overlayfs layers rw
34 28 0:43 / /srv/over rw - nfs filer:/over rw
35 34 254:1 / /srv/over rw - xfs /dev/vdb rw
36 28 254:0 /mnt/me/x.db /data/x.db rw - ext4 /dev/vda rw
"""


class Host:
    """A host whose clocks are set by hand."""

    def __init__(self, boot="first"):
        self.now, self.uptime, self.boot = 1_800_000_000.0, 5_000.0, boot

    def pass_time(self, seconds):
        self.now += seconds
        self.uptime += seconds

    def store(self, path, namespace="so"):
        clocks = Clocks(lambda: self.now, lambda: self.uptime, self.boot)
        return sqlite.SqliteStore(DatabaseFile(str(path), sqlite.SCHEMA, aio=False, mounts=None), namespace, clocks)


def claimed(store, key, by="mine/1", ttl=60.0, **more):
    grant = run(store.claim(key, by, ttl, info={}, **more))
    assert isinstance(grant, Grant)
    return grant


def tokens(store, prefix=""):
    return sorted(holder.token for holder in run(store.listing(prefix)).holders)


def execute(path, statement, *values):
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        return db.execute(statement, values).fetchall()


def started(script, *args):
    """A Python process of its own; it has the names that its script needs."""
    names = """
        import os, signal, sqlite3, sys, time
        from soloist._world import run
        from soloist.contract import *
        from soloist.errors import *
        from soloist.stores import open_store, sqlite
        def opened(path): return open_store(f"sqlite:///{path}", "so", aio=False)
    """
    program = textwrap.dedent(names) + textwrap.dedent(script)
    return subprocess.Popen([sys.executable, "-c", program, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process):
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    return out.split()
