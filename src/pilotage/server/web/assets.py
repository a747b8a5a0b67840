"""The files that pages load: sent under names with a hash of their bytes, so that browsers may keep them for ever."""

from __future__ import annotations

import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
KEPT = {"Cache-Control": "public, max-age=31536000, immutable"}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file."""

    data: bytes
    media_type: str


class Assets:
    """All files of the folder `static` that pages name."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._hashed: dict[str, str] = {}
        self._by_hashed: dict[str, Asset] = {}
        for path in sorted(folder.iterdir()):
            media_type = mimetypes.guess_type(path.name)[0]
            if path.suffix not in (".js", ".css", ".svg") or media_type is None:
                continue
            data = path.read_bytes()
            hashed = f"{path.stem}.{hashlib.sha256(data).hexdigest()[:12]}{path.suffix}"
            self._hashed[path.name] = hashed
            self._by_hashed[hashed] = Asset(data, media_type)

    def hashed(self, name: str) -> str:
        """The name under which a file is sent."""
        return self._hashed[name]

    def find(self, hashed: str) -> Asset | None:
        return self._by_hashed.get(hashed)
