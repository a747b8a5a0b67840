"""A cell of Grid Engine: its folder, and the address of its master."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from pilotage.core.errors import Unreachable
from pilotage.outside.batch.command_client import describe_end
from pilotage.outside.batch.runner import TIMEOUT, Runner

DEBIAN_ROOT = "/var/lib/gridengine"
"""SGE_ROOT of Debian's packages, whose commands need no variable."""

DEFAULT_PORT = 6444
"""The port that IANA has registered for sge_qmaster."""

_HINT = "set SGE_ROOT and SGE_CELL of the account, or `root` and `cell` in the CE's section"

_LOCATE = """\
folder=${SGE_ROOT:-$1}/${SGE_CELL:-default}
set -- $(getent services sge_qmaster/tcp 2>/dev/null)
port=${2%%/*}
printf 'cell %s %s\\n' "${SGE_QMASTER_PORT:-${port:-0}}" "$folder"
cat -- "$folder/common/act_qmaster"
"""
"""Prints port and folder on the first line, and then the content of act_qmaster. $1: the default of SGE_ROOT."""


class MasterPlace(NamedTuple):
    """The master of a cell now."""

    host: str
    port: int
    folder: str
    """The folder of the cell."""


class CellFiles(Protocol):
    """The files of a cell, here or on a login node."""

    def locate(self) -> MasterPlace:
        """The master now: a shadow that takes over writes its own name there. `Unreachable`: no file tells it."""
        ...


@dataclass(frozen=True, slots=True)
class FarCell:
    """The cell that Grid Engine's commands use on another host."""

    runner: Runner
    timeout: float = TIMEOUT

    def locate(self) -> MasterPlace:
        result = self.runner.run(["sh", "-c", _LOCATE, "sh", DEBIAN_ROOT], timeout=self.timeout)
        if not result.succeeded:
            reason = result.unreached or result.errors.strip() or describe_end("cat", result.status)
            raise Unreachable(reason, hint="" if result.unreached else _HINT)
        match = re.fullmatch(r"cell ([0-9]{1,5}) ([^\n]+)\n\s*(\S+)\s*", result.output)
        if match is None:
            raise Unreachable(f"act_qmaster names no master: {result.output[:200]!r}", hint=_HINT)
        return MasterPlace(match[3], int(match[1]) or DEFAULT_PORT, match[2])


@dataclass(frozen=True, slots=True)
class Cell:
    """The folder of a cell on this machine, which names the host of its master."""

    folder: Path
    port: int

    @staticmethod
    def of(environment: Mapping[str, str]) -> Cell:
        """The cell that Grid Engine's commands use in this environment."""
        folder = Path(environment.get("SGE_ROOT", DEBIAN_ROOT), environment.get("SGE_CELL", "default"))
        port = environment.get("SGE_QMASTER_PORT", "")
        return Cell(folder, int(port) if port.isdecimal() else _service_port())

    def locate(self) -> MasterPlace:
        path = self.folder / "common" / "act_qmaster"
        try:
            host = path.read_text().strip()
        except OSError as error:
            raise Unreachable(f"the file {path} cannot be read: {error.strerror}", hint=_HINT) from None
        except UnicodeDecodeError:
            raise Unreachable(f"the file {path} is no text", hint=_HINT) from None
        if not host:
            raise Unreachable(f"the file {path} is empty: the master has not been started", hint=_HINT)
        return MasterPlace(host, self.port, str(self.folder))


def _service_port() -> int:
    try:
        return socket.getservbyname("sge_qmaster", "tcp")
    except OSError:
        return DEFAULT_PORT
