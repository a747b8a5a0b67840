"""Folders by their names: which of them hold a path."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable


def shows(folders: Iterable[str], path: str) -> bool:
    """Whether a path is one of these folders or in one of them."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def folder_mistake(path: str) -> str:
    """Why this cannot be the name of a folder, such as "is not an absolute path"; empty: it can."""
    if not path.startswith("/"):
        return "is not an absolute path"
    if not path.isprintable():
        return "contains characters that cannot be printed"
    plain = posixpath.normpath(path).replace("//", "/")
    return "" if plain == path else f"is not a normal path: write {plain}"
