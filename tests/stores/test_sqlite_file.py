"""The file of an SQLite store: made, deleted, renamed, full, foreign, forbidden, and the URL that names it."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from soloist._world import run
from soloist.contract import Busy
from soloist.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from soloist.stores import open_store, sqlite
from soloist.stores._sqlite.file import DatabaseFile
from soloist.stores._sqlite.host import host_clocks, refused
from tests.stores.sqlites import MOUNTS, claimed, execute, said, started, tokens


def test_the_file_has_a_write_ahead_log_and_says_its_format(path, opened):
    claimed(opened(path), "k")
    assert execute(path, "pragma journal_mode") == [("wal",)]
    assert execute(path, "select format from soloist_store") == [(1,)]
    assert execute(path, "pragma user_version") == [(0,)]


def test_a_users_own_database_is_left_as_it_is(path, opened):
    execute(path, "create table users (name)")
    execute(path, "insert into users values ('ann')")
    store = opened(path)
    assert tokens(store) == []
    assert execute(path, "select name from sqlite_schema") == [("users",)]
    claimed(store, "k")
    assert tokens(opened(path)) == ["mine/1"]
    assert execute(path, "select name from users") == [("ann",)]


def test_tables_that_were_dropped_are_made_again_by_whoever_claims(path, opened):
    store = opened(path)
    grant = claimed(store, "k")
    execute(path, "drop table soloist_lock")
    assert run(store.renew(grant, 60))[:2] == (None, None)
    assert execute(path, "select name from sqlite_schema where name = 'soloist_lock'") == []
    assert claimed(store, "k", "next/1").fence > grant.fence


def test_a_hold_in_a_deleted_file_has_vanished(path, opened):
    store = opened(path)
    grant = claimed(store, "k")
    path.unlink()
    assert run(store.renew(grant, 60))[:2] == (None, None)
    assert not run(store.release(grant))
    assert not path.exists()
    assert claimed(store, "k", "next/1").fence > grant.fence


def test_whoever_has_a_deleted_file_open_meets_the_others_in_the_new_one(path, opened):
    old, other = opened(path), opened(path)
    claimed(old, "k")
    assert tokens(other) == ["mine/1"]
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink()
    claimed(opened(path), "k", "next/1")
    assert isinstance(run(old.claim("k", "mine/2", 60, info={})), Busy)
    assert tokens(other) == ["next/1"]


def test_a_file_that_was_renamed_is_another_one(path, opened):
    store = opened(path)
    claimed(store, "k")
    path.rename(path.with_name("y.db"))
    assert tokens(store) == []
    claimed(store, "k", "next/1")
    assert tokens(opened(path)) == ["next/1"]


def test_a_relative_path_is_counted_from_where_the_store_was_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///x%20y.db", "so", aio=False)
    monkeypatch.chdir("/")
    claimed(store, "k")
    run(store.close())
    assert (tmp_path / "x y.db").is_file()


def not_a_database(path):
    path.write_bytes(b"this is no database, but long enough to be taken for one" * 100)


def a_damaged_one(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table users (name)")
    damaged = bytearray(path.read_bytes())
    damaged[100:200] = b"\xff" * 100
    path.write_bytes(damaged)


def a_directory(path):
    path.mkdir()


def somebody_elses_tables(path):
    execute(path, "create table soloist_lock (id)")


def a_store_of_another_kind(path):
    execute(path, "create table soloist_store (name)")


def a_format_that_is_no_number(path):
    execute(path, "create table soloist_store (format)")
    execute(path, "insert into soloist_store values ('x')")


def a_newer_format(path):
    store = open_store(f"sqlite:///{path}", "so", aio=False)
    claimed(store, "k")
    run(store.close())
    execute(path, "update soloist_store set format = 2")


def a_database_in_utf_16(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma encoding = 'UTF-16'")
        db.execute("create table users (name)")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (not_a_database, "no SQLite database.*move it away"),
        (a_damaged_one, "damaged.*move it away"),
        (a_directory, "is no file: use another path"),
        (somebody_elses_tables, "aren't ours.*use a file of its own"),
        (a_store_of_another_kind, "aren't ours.*use a file of its own"),
        (a_format_that_is_no_number, "newer format x.*upgrade"),
        (a_newer_format, "newer format 2.*upgrade"),
        (a_database_in_utf_16, "UTF-16: use another file"),
    ],
)
def test_a_file_that_cant_be_used_is_refused_with_advice(path, opened, make, says):
    make(path)
    with pytest.raises(ConfigError, match=f"(?s){path}.*{says}"):
        run(opened(path).claim("k", "mine/1", 60, info={}))


@pytest.mark.parametrize("make", [not_a_database, a_directory, a_newer_format, a_database_in_utf_16])
def test_a_reader_is_told_so_too(path, opened, make):
    make(path)
    with pytest.raises(ConfigError, match=str(path)):
        run(opened(path).ping())


def test_tables_that_happen_to_have_our_names_are_left_alone(path, opened):
    somebody_elses_tables(path)
    with pytest.raises(ConfigError):
        claimed(opened(path), "k")
    assert execute(path, "select name from sqlite_schema") == [("soloist_lock",)]


def test_a_directory_that_isnt_there_is_named(tmp_path, opened):
    store = opened(tmp_path / "no/x.db")
    assert tokens(store) == []
    with pytest.raises(ConfigError, match=f"no directory '{tmp_path}/no': make it"):
        claimed(store, "k")


def test_a_path_through_a_file_is_refused(path, opened):
    path.write_text("")
    with pytest.raises(ConfigError, match="Not a directory"):
        claimed(opened(path / "x.db"), "k")


@pytest.mark.skipif(os.name != "posix", reason="rights of a POSIX system")
@pytest.mark.parametrize(("mode_of_directory", "mode_of_file"), [(0o755, None), (0o755, 0o644), (0o777, 0o444)])
def test_a_user_without_the_right_to_write_is_told_what_to_permit(tmp_path_factory, mode_of_directory, mode_of_file):
    script = """
        import shutil, tempfile
        folder = tempfile.mkdtemp()
        path, mode, file_mode = f"{folder}/x.db", int(sys.argv[1]), int(sys.argv[2])
        if file_mode:
            store = opened(path)
            run(store.claim("k", "mine/1", 60, info={}))
            run(store.close())
            os.chmod(path, file_mode)
        os.chmod(folder, mode if os.getuid() == 0 else mode & 0o577 | 0o500)
        if os.getuid() == 0:
            if os.fork():
                status = os.wait()[1]
                shutil.rmtree(folder)
                sys.exit(os.waitstatus_to_exitcode(status))
            os.setuid(65534)
        try:
            run(opened(path).claim("k2", "mine/1", 60, info={}))
        except ConfigError as error:
            print(str(error).replace(" ", "_"))
    """
    [message] = said(started(script, mode_of_directory, mode_of_file or 0))
    assert message.startswith("this_user_may_not_")
    assert "permit_it" in message


def test_a_full_disk_is_unavailable_and_nothing_was_done(path, opened):
    store = opened(path)
    claimed(store, "k")
    [(pages,)] = store._file._db.execute("pragma page_count").fetchall()
    store._file._db.execute(f"pragma max_page_count = {pages}")
    with pytest.raises(StoreUnavailable, match="make room"):
        run(store.claim("large", "mine/1", 60, info={"x": "x" * 60_000}))
    assert tokens(store) == ["mine/1"]


def test_a_disk_that_fails_leaves_the_outcome_unknown(path, opened):
    def commit(_):
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise error

    with pytest.raises(OutcomeUnknown, match="disk I/O error"):
        run(opened(path)._file.ask(commit, 1, makes=True))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/mnt/me/x.db", None),
        ("/srv/team files/x.db", "nfs4 on '/srv/team files'"),
        ("/srv/team files/deep/down/x.db", "nfs4"),
        ("/srv/team files too/x.db", None),
        ("/mnt/me/drive/x.db", "fuse.sshfs"),
        ("/var/lib/layers/x.db", None),
        ("/srv/over/x.db", None),
        ("/data/x.db", "mount of its own"),
        ("/data/y.db", None),
    ],
)
def test_a_network_file_system_is_told_from_a_disk(path, kind):
    reason = refused(path, MOUNTS)
    assert reason is None if kind is None else kind in str(reason)


def test_a_file_on_a_network_is_refused_unless_it_is_allowed(tmp_path, path):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"31 28 0:40 / {tmp_path} rw - cifs //filer/team rw\n")
    store = sqlite.SqliteStore(DatabaseFile(str(path), sqlite.SCHEMA, aio=False, mounts=mounts), "so", host_clocks())
    with pytest.raises(ConfigError, match=r"network file system \(cifs.*a server.*allow_network_fs=1"):
        claimed(store, "k")
    assert not path.exists()
    allowed = open_store(f"sqlite:///{path}?allow_network_fs=1", "so", aio=False)
    assert allowed._file._mounts is None
    run(allowed.close())


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite://", "names no file.*sqlite:///relative.db"),
        ("sqlite:///", "names no file"),
        ("sqlite:////", "names no file"),
        ("sqlite:x.db", "names no file"),
        ("sqlite://me:secret@host/x.db", "names no file"),
        ("sqlite:///x.db#y", "names no file.*%23"),
        ("sqlite:///x%00.db", "names no file"),
        ("sqlite://:memory:", "use memory://"),
        ("sqlite:///:memory:", "use memory://"),
        ("sqlite://[x/y.db", "can't be read.*sqlite:///relative.db"),
        ("sqlite:///x.db?timeout=5", "not timeout"),
        ("sqlite:///x.db?allow_network_fs=maybe", "allow_network_fs=1"),
    ],
)
def test_a_url_that_names_no_file_of_this_host_is_refused(url, says):
    with pytest.raises(ConfigError, match=says) as caught:
        open_store(url, "so", aio=False)
    assert "secret" not in str(caught.value)


def test_an_sqlite_that_is_too_old_is_refused(monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(ConfigError, match=r"needs SQLite 3\.35"):
        open_store("sqlite:///x.db", "so", aio=False)


@pytest.mark.skipif(not os.access("/proc", os.W_OK), reason="only root may try")
def test_a_directory_in_which_no_file_can_be_made_is_named(opened):
    with pytest.raises(StoreUnavailable, match=r"see whether a file can be made in '/proc' at all"):
        claimed(opened("/proc/x.db"), "k")


def test_more_slots_than_sqlite_can_number_are_a_mistake_of_ours(path, opened):
    with pytest.raises(AssertionError, match="no such slot"):
        claimed(opened(path), "k", slots=2**63 + 1)
