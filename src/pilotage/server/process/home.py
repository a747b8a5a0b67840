"""The home folder of an instance: its paths, its owner, and the file system that it is on.

- `lock`: held by the one server of this home; names host and process
- `instance.json`: the database that belongs to this home, and the place of the home
- `server.json`: address, process and host of the server
- `listen.json`: where the server listens at the next start
- `token`: the home owner's token (mode 600)
- `pilotage.db`: the database (local disk only), unless it is one of PostgreSQL
- `secrets/`: the key that signs tokens (mode 600)
- `sandboxes/`: inputs, outputs, tails
- `pilots/`: the log of each local pilot
- `ssh/`: the control sockets of connections to login nodes
- `storage/`: output files of requests, unless the policy names other storage places
- `backups/`: the database before each upgrade
- `server.log`: the log of a detached server
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pilotage.core.errors import Conflict, InvalidInput
from pilotage.home_place import DATABASE, INSTANCE, HomePlace, refuse_copy
from pilotage.server.private_files import write_private
from pilotage.store.admin.database import Database, database_at

NETWORK_FILE_SYSTEMS = frozenset(
    {
        "nfs",
        "nfs4",
        "lustre",
        "gpfs",
        "beegfs",
        "cifs",
        "smb3",
        "smbfs",
        "afs",
        "ceph",
        "glusterfs",
        "9p",
        "panfs",
        "orangefs",
        "pvfs2",
        "fhgfs",
        "wekafs",
        "virtiofs",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.ceph",
    }
)

LISTENING = "listen.json"
STORAGE = "storage"
"""The folder of output files, the storage place of the home."""


class ServerFacts(msgspec.Struct, frozen=True):
    """server.json: how clients find the server."""

    url: str
    pid: int
    host: str
    fingerprints: tuple[str, ...] = ()
    """Certificates of the server that clients accept; none: a CA decides."""
    ca_file: str = ""
    """File of accepted CAs; empty: the system's CAs."""


class Listening(msgspec.Struct, frozen=True):
    """listen.json: where the servers of a home listen, until `up` names another address."""

    host: str = "127.0.0.1"
    pilot_server: str = ""
    """The address for pilots; empty: the server's own."""


class InstanceFacts(msgspec.Struct, frozen=True):
    """instance.json: the database that belongs to the home, and the place of the home (`home_place.py`)."""

    uuid: str
    database: str
    """An address, or a path: inside of the home it is relative, so that it moves with the home."""
    folder: str = ""
    device: int = 0
    inode: int = 0


def _known_instance(folder: Path) -> InstanceFacts | None:
    try:
        return msgspec.json.decode((folder / INSTANCE).read_bytes(), type=InstanceFacts)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise InvalidInput(f"the home {folder} is no folder", hint="choose another with --home") from None
    except OSError as error:
        raise InvalidInput(f"{folder / INSTANCE} cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{folder / INSTANCE} cannot be read: {error}") from None


def _known_database(folder: Path, known: InstanceFacts | None) -> str:
    """The path or address of the home's own database."""
    stored = known.database if known else DATABASE
    if "://" in stored:
        return stored
    path, inside = folder / stored, folder / DATABASE
    # Earlier versions stored the whole path, which is another one when the home has moved.
    if path.name == DATABASE and inside.exists() and (not path.exists() or (path.parent / INSTANCE).exists()):
        return str(inside)
    return str(path)


@dataclass(frozen=True, slots=True)
class Home:
    """The paths of one instance. The database may be elsewhere: on a local disk, or on a PostgreSQL server."""

    folder: Path
    database: Database

    @classmethod
    def at(cls, folder: Path, database: str = "", programs: Path | None = None) -> Home:
        """The home `folder` with a database: `database` (path or address), the one of the last start, or one inside.

        `programs`: the folder of PostgreSQL's own programs. Raises `Conflict` for a copy of another home.
        """
        refuse_copy(folder)
        return cls.copied_at(folder, database, programs)

    @classmethod
    def copied_at(cls, folder: Path, database: str = "", programs: Path | None = None) -> Home:
        """The same without a look whether the folder is a copy: for its adoption only."""
        folder = folder.expanduser().absolute()
        database = database or _known_database(folder, _known_instance(folder))
        return cls(folder, database_at(database, programs))

    def check_database(self) -> None:
        """Refuse to create a second database in a home that has one: it would allocate the same ids again."""
        file = self.database.file
        if file is not None and not file.exists():
            self.check_new()

    def check_new(self) -> None:
        """Refuse to create an instance in a home that already has one."""
        known = _known_instance(self.folder)
        if known is not None:
            raise Conflict(
                f"the database {self.database.shown} is not there or empty, and the home {self.folder} has jobs in one",
                hint=f"the home's own was {_known_database(self.folder, known)}:"
                " give its place with --database or --database-url, or restore a backup",
            )

    def bind(self, uuid: str) -> None:
        """Store which database belongs to this home. Refuse the database of another instance.

        The home has the sandboxes of its own jobs. Another database would allocate the same ids to other jobs.
        """
        known = _known_instance(self.folder)
        if known is not None and known.uuid != uuid:
            raise Conflict(
                f"the database {self.database.shown} is of another instance than the home {self.folder}",
                hint=f"the home's own is {_known_database(self.folder, known)};"
                " for a new instance choose another --home",
            )
        self.become(uuid)

    def become(self, uuid: str) -> None:
        """Store that this folder is the home of the instance `uuid`, with this database."""
        file = self.database.file
        inside = file is not None and file.is_relative_to(self.folder)
        database = str(file.relative_to(self.folder)) if file is not None and inside else self.database.shown
        facts = InstanceFacts(uuid, database, *HomePlace.of(self.folder))
        if facts != _known_instance(self.folder):
            write_private(self.folder / INSTANCE, msgspec.json.encode(facts).decode())

    @property
    def facts(self) -> Path:
        return self.folder / "server.json"

    @property
    def token(self) -> Path:
        return self.folder / "token"

    @property
    def storage(self) -> Path:
        return self.folder / STORAGE

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def make(self) -> None:
        """Create the folder, accessible by its owner only."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self.database.file is not None:
                self.database.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            for name in ("secrets", "sandboxes", "pilots", "backups", STORAGE):
                (self.folder / name).mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise InvalidInput(f"the home {self.folder} cannot be made: {error.strerror}") from None
        if self.folder.stat().st_uid != os.getuid():
            raise InvalidInput(
                f"the home {self.folder} belongs to another user", hint="choose another with --home"
            )

    def check_disk(self, mounts: str = "/proc/self/mounts") -> None:
        """Refuse a database on a network file system: SQLite's locks and flushes are not reliable there."""
        if self.database.file is None:
            return
        folder = self.database.file.parent
        kind = file_system_of(folder, Path(mounts).read_text())
        if kind in NETWORK_FILE_SYSTEMS:
            proposed = f"/var/tmp/pilotage-{os.getuid()}/pilotage.db"  # noqa: S108 (a proposal, made private)
            raise InvalidInput(
                f"{folder} is on a network file system ({kind}), where a database can be corrupted",
                hint=f"keep the home there and the database on a local disk: --database {proposed}",
            )

    def known_facts(self) -> ServerFacts | None:
        """The address of the running or last server of this home."""
        try:
            return msgspec.json.decode(self.facts.read_bytes(), type=ServerFacts)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    @property
    def listening(self) -> Listening:
        """Where the last server listened, or the default."""
        try:
            return msgspec.json.decode((self.folder / LISTENING).read_bytes(), type=Listening)
        except FileNotFoundError:
            return Listening()
        except (OSError, msgspec.MsgspecError) as error:
            raise InvalidInput(
                f"{self.folder / LISTENING} cannot be read: {error}", hint="remove it, and give --listen"
            ) from None

    def keep_listening(self, listening: Listening) -> None:
        """Let the next server listen there too."""
        if listening != self.listening:
            write_private(self.folder / LISTENING, msgspec.json.encode(listening).decode())

    def write_facts(self, url: str, fingerprints: tuple[str, ...] = (), ca_file: str = "") -> None:
        facts = ServerFacts(url, os.getpid(), socket.gethostname(), fingerprints, ca_file)
        write_private(self.facts, msgspec.json.encode(facts).decode())


def _describe_holder(text: bytes) -> str:
    """Such as "process 812 on lab.example.org"; empty if the lock file does not tell."""
    try:
        holder = msgspec.json.decode(text, type=dict[str, object])
        return f"process {holder['pid']} on {holder['host']}"
    except (msgspec.MsgspecError, KeyError):
        return ""


class HomeLock:
    """Held while a server owns the home. The kernel releases it when the process ends for any reason."""

    def __init__(self, home: Home) -> None:
        self._path = home.folder / "lock"
        self._paths = {self._path}
        file = home.database.file
        if file is not None:
            # The database has a lock file too: two homes must not share it.
            self._paths.add(file.with_name(file.name + ".lock"))
        self._handles: list[int] = []

    def acquire(self) -> None:
        """Take the lock, or raise `Conflict` with the name of its holder."""
        for path in sorted(self._paths):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._handles.append(handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = _describe_holder(os.read(handle, 1000))
                self.release()
                raise Conflict(
                    f"another server runs on this home: {holder or path}",
                    hint="use it (`pilotage status`), end it (`pilotage down`), or choose another --home",
                ) from None
            text = json.dumps({"host": socket.gethostname(), "pid": os.getpid()})
            os.ftruncate(handle, 0)
            os.pwrite(handle, text.encode(), 0)

    def release(self) -> None:
        for handle in self._handles:
            os.close(handle)
        self._handles.clear()


def file_system_of(folder: Path, mounts: str) -> str:
    """The type of the file system of `folder`, from the text of /proc/self/mounts."""
    place = str(folder.resolve())
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].encode().decode("unicode_escape")
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind
