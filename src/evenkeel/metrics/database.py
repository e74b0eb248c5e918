"""Opening run.db: write-ahead log where it works, migrations, and SQLite's failures in words.

Durability. With a write-ahead log a killed process loses nothing that was committed, whatever `synchronous` is; a power
cut loses the last commits unless it is FULL. It is FULL, because checkpoints are fsynced: rows must never be older than
the checkpoint that counts on them. It costs one fsync per step.

Network file systems have no shared memory between machines, on which the write-ahead log depends. There we keep the
rollback journal instead: equally safe, but a reader can hold the writer up for a moment.

A run directory may be a stranger's: `trusted_schema` is off, so that nothing in its schema can call functions with side
effects, and we only ever read plain values from it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from evenkeel.errors import RunError, UsageError
from evenkeel.metrics.schema import APPLICATION_ID, MIGRATIONS

_NETWORK_FILE_SYSTEMS = (
    "nfs", "cifs", "smb", "9p", "drvfs", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.glusterfs", "lustre", "gpfs", "ceph",
    "beegfs", "afs",
)  # fmt: skip
_WAIT_S = 30.0
_GIVE_A_RUN = "Give a directory that `evenkeel train` wrote."


def open_for_writing(path: Path, migrations: Sequence[str] = MIGRATIONS) -> sqlite3.Connection:
    """Open or create the database, brought up to date."""
    with sqlite_errors(path):
        connection = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)
        try:
            _prepare(connection, path, migrations)
        except BaseException:
            connection.close()
            raise
    return connection


def open_for_reading(path: Path, migrations: Sequence[str] = MIGRATIONS) -> sqlite3.Connection:
    """Open read-only, beside a writer. A database of an older version is brought up to date first."""
    if not path.is_file():
        raise UsageError(f"{path.parent} is no run directory: it has no {path.name}. {_GIVE_A_RUN}")
    with sqlite_errors(path):
        connection = _connect_read_only(path)
        try:
            version = _checked_version(connection, path, len(migrations))
        except BaseException:
            connection.close()
            raise
        if version < len(migrations):
            connection.close()
            open_for_writing(path, migrations).close()
            connection = _connect_read_only(path)
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """All or nothing."""
    with sqlite_errors(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            # A full disk may have rolled back by itself.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """SQLite's failures that the world causes, as ours; any other is our mistake and rises as it is."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        go_on = f"then go on with `evenkeel train --resume {path.parent}`."
        if code == sqlite3.SQLITE_FULL:
            message = f"Writing {path} failed: the disk is full. What was recorded before is kept. Free some space, {go_on}"
            raise RunError(message) from error
        if code == sqlite3.SQLITE_IOERR:
            raise RunError(f"Reading or writing {path} failed: {error}. Check the disk, {go_on}") from error
        if code == sqlite3.SQLITE_BUSY:
            message = f"{path} was locked by another process for {_WAIT_S:.0f} s. Close what holds it, {go_on}"
            raise RunError(message) from error
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise UsageError(f"{path} is not a readable database ({error}). {_GIVE_A_RUN}") from error
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            advice = "Check that you may read and write its directory, or give another."
            raise UsageError(f"{path} cannot be opened ({error}). {advice}") from error
        raise


def has_write_ahead_log(connection: sqlite3.Connection) -> bool:
    return connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


def is_network_path(path: Path, mounts: str | None = None) -> bool:
    """Whether `path` lies on a network file system; `mounts` is the text of /proc/self/mounts (absent: assume not).

    >>> is_network_path(Path("/data/run"), "overlay / overlay rw 0 0\\nhost:/x /data nfs4 rw 0 0\\n")
    True
    >>> is_network_path(Path("/database"), "overlay / overlay rw 0 0\\nhost:/x /data nfs4 rw 0 0\\n")
    False
    """
    if mounts is None:
        table = Path("/proc/self/mounts")
        mounts = table.read_text(errors="replace") if table.exists() else ""
    found, found_type = Path("/"), ""
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split(" ")
        mount = Path(point.replace("\\040", " "))
        # Later lines hide earlier ones at the same point.
        if path.is_relative_to(mount) and len(mount.parts) >= len(found.parts):
            found, found_type = mount, kind
    return found_type.startswith(_NETWORK_FILE_SYSTEMS)


# --------------------------------------------------------------------------- helpers


def _prepare(connection: sqlite3.Connection, path: Path, migrations: Sequence[str]) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    _checked_version(connection, path, len(migrations))
    mode = "DELETE" if is_network_path(path.resolve()) else "WAL"
    # Answers with the mode that it got, which stays `delete` where shared memory is not to be had.
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.execute("PRAGMA synchronous = FULL")
    _migrate(connection, path, migrations)


def _migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[str]) -> None:
    with transaction(connection, path):
        # Read inside the transaction: another process may have migrated while we waited for the lock.
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        for script in migrations[version:]:
            for statement in _statements(script):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")


def _statements(script: str) -> Iterator[str]:
    """`executescript` would commit the open transaction, and a migration is all or nothing."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _checked_version(connection: sqlite3.Connection, path: Path, newest: int) -> int:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    owner = connection.execute("PRAGMA application_id").fetchone()[0]
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if owner != APPLICATION_ID and not (empty and version == 0):
        raise UsageError(f"{path} is an SQLite database, but not one of evenkeel's. {_GIVE_A_RUN}")
    if version > newest:
        raise UsageError(
            f"{path} has schema version {version}, and this evenkeel knows versions up to {newest}: a newer evenkeel wrote it. "
            f"Run: pip install --upgrade evenkeel"
        )
    return version


def _connect_read_only(path: Path) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.resolve()))}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=_WAIT_S, isolation_level=None)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        if path.with_name(path.name + "-wal").exists():
            raise
        # A finished run on read-only media: SQLite wants to create the log's index beside the file, and need not.
        connection = sqlite3.connect(uri + "&immutable=1", uri=True, timeout=_WAIT_S, isolation_level=None)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection
