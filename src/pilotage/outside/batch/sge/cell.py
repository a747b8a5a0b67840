"""A cell of Grid Engine: its folder, and the address of its master."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pilotage.core.errors import Unreachable

DEBIAN_ROOT = "/var/lib/gridengine"
"""SGE_ROOT of Debian's packages, whose commands need no variable."""

DEFAULT_PORT = 6444
"""The port that IANA has registered for sge_qmaster."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The folder of a cell, which names the host of its master."""

    folder: Path
    port: int

    @staticmethod
    def of(environment: Mapping[str, str]) -> Cell:
        """The cell that Grid Engine's commands use in this environment."""
        folder = Path(environment.get("SGE_ROOT", DEBIAN_ROOT), environment.get("SGE_CELL", "default"))
        port = environment.get("SGE_QMASTER_PORT", "")
        return Cell(folder, int(port) if port.isdecimal() else _service_port())

    def master(self) -> str:
        """The host of the master now. A shadow master that takes over writes its own name there."""
        path = self.folder / "common" / "act_qmaster"
        hint = "set SGE_ROOT and SGE_CELL of the server, or `root` and `cell` in the CE's section"
        try:
            host = path.read_text().strip()
        except OSError as error:
            raise Unreachable(f"the file {path} cannot be read: {error.strerror}", hint=hint) from None
        except UnicodeDecodeError:
            raise Unreachable(f"the file {path} is no text", hint=hint) from None
        if not host:
            raise Unreachable(f"the file {path} is empty: the master has not been started", hint=hint)
        return host


def _service_port() -> int:
    try:
        return socket.getservbyname("sge_qmaster", "tcp")
    except OSError:
        return DEFAULT_PORT
