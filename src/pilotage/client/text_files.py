"""Files of text that a user names: descriptions, requests, policies, ads, manifests, values."""

from __future__ import annotations

from math import inf
from pathlib import Path

from pilotage.core.errors import InvalidInput


def read_text(path: Path, kind: str, largest: float = inf) -> str:
    """The text of a file of at most `largest` bytes. `kind`: such as "a request", for the messages of InvalidInput."""
    try:
        if path.stat().st_size > largest:
            raise InvalidInput(f"{path} is too large for {kind}")
        # Some editors put a mark before the first letter.
        return path.read_text(encoding="utf-8-sig")
    except OSError as trouble:
        raise InvalidInput(f"cannot read {path}: {trouble.strerror}") from trouble
    except UnicodeDecodeError as trouble:
        raise InvalidInput(f"{path} is not a text in UTF-8") from trouble
    except ValueError as trouble:  # a NUL in the name
        raise InvalidInput(f"cannot read {path}: {trouble}") from trouble
