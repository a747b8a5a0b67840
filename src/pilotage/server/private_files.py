"""Files that only their owner can read."""

from __future__ import annotations

import secrets
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read. The file is replaced atomically."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        partial.touch(mode=0o600)
        partial.write_text(text + "\n")
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
