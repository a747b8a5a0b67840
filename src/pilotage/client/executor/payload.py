"""The files and the description of one submission: many jobs, each with a chunk of calls."""

from __future__ import annotations

import importlib.util
import io
import os
import pickle
import shutil
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotage.client.executor import node_program

if TYPE_CHECKING:
    from pilotage.client.executor.calls import PendingCall

SHARED_BYTES = 1024 * 1024
"""Up to this size the calls of all jobs are one file: it is uploaded once, and each job finds its chunk in it."""
PROGRAM, FUNCTIONS, CALLS, RESULTS = "program.zip", "functions", "calls", "results"
OWN_FIELDS = frozenset(("executable", "arguments", "input_sandbox", "output_sandbox"))
"""Fields of the description of jobs that are made here."""
PYTHON = ".".join(map(str, sys.version_info[:2]))

START = """\
for python in "$1" "python$2" python3; do
    if command -v "$python" >/dev/null 2>&1; then exec "$python" "$3" "$2" "$4"; fi
done
echo "this node has no Python; the calls need Python $2" >&2
exit 127
"""
"""Finds the caller's own interpreter, else one of its version. The program refuses others."""


def write_payload(
    folder: Path, chunks: Sequence[Sequence[PendingCall]], options: Mapping[str, Any], *, data: bool
) -> dict[str, Any]:
    """Write the files of a submission to a new `folder`; return its description, whose parameter is the chunk.

    `data`: outcomes are plain data.
    """
    folder.mkdir(parents=True)
    numbers: dict[bytes, int] = {}
    packed: list[list[tuple[int, bytes]]] = []
    for chunk in chunks:
        pairs = []
        for call in chunk:
            assert call.function is not None
            pairs.append((numbers.setdefault(call.function.body, len(numbers)), call.arguments))
        packed.append(pairs)
    _write(folder / PROGRAM, program())
    _write(folder / FUNCTIONS, pickle.dumps((list(numbers), _folders(), data)))
    shared = sum(len(arguments) for chunk in packed for _, arguments in chunk) <= SHARED_BYTES
    if shared:
        _write(folder / CALLS, pickle.dumps(packed))
    else:
        for number, pairs in enumerate(packed):
            _write(folder / f"{CALLS}-{number}", pickle.dumps([pairs]))
    inputs = [PROGRAM, FUNCTIONS, CALLS if shared else {"path": f"{CALLS}-%s", "name": CALLS}]
    chunk_number = "%s" if shared else "0"
    return {
        "executable": "sh",
        "arguments": ["-c", START, "start", sys.executable, PYTHON, PROGRAM, chunk_number],
        "input_sandbox": inputs,
        "output_sandbox": [RESULTS],
        **options,
    }


def program() -> bytes:
    """The zip file that runs on nodes: the program and cloudpickle. Its bytes are the same each time."""
    spec = importlib.util.find_spec("cloudpickle")
    assert spec is not None
    assert spec.submodule_search_locations
    files = {"__main__.py": Path(node_program.__file__)}
    for file in sorted(Path(spec.submodule_search_locations[0]).glob("*.py")):
        files[f"cloudpickle/{file.name}"] = file
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in files.items():
            archive.writestr(zipfile.ZipInfo(name), file.read_bytes())
    return buffer.getvalue()


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _folders() -> list[str]:
    """Where this interpreter finds modules: a node that shares these folders finds them there, too."""
    return [os.path.abspath(folder) for folder in sys.path if os.path.isdir(folder or ".")]


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
