"""The input data of a job: finds its files on the node, and tells the program about them.

The program learns everything from one JSON file, and the same from the environment: docs/reference/data-in-jobs.md.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import closing
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence
from urllib.parse import urlsplit
from urllib.request import urlopen

from pilotage.wire.data import DataFile, DataOrder

from .cannot_run import CannotRun
from .checksums import WrongContent, verified
from .events import Key
from .isolation.client import Isolation
from .place import PIECE, PlaceFailed, is_url
from .places import OpenPlaces

INPUT_FILE = "pilotage-input.json"
LIST_FILE = "pilotage-files.txt"
REPORT_FILE = "pilotage-report.json"
COPIES = "inputs"
"""The folder of input files that were copied because the payload does not see the originals."""
MAX_FILES_TEXT = 65_536
"""Bytes of PILOTAGE_FILES at most: the kernel bounds each variable. A longer list is only in its file."""
FORMAT = 1
"""The version of the JSON file."""
_URL_TIMEOUT = 60.0
READS = 3
"""Readings of an input file until its bytes are believed."""


class SpoiltInput(CannotRun):
    """An input file has other bytes than the catalogue tells. A second reading may give the right ones."""


def prepare_inputs(
    order: DataOrder,
    isolation: Optional[Isolation],
    places: OpenPlaces,
) -> List[str]:
    """The path or URL of each input file, as the program finds it. Raises CannotRun and DataCancelled."""
    paths = []
    for number, file in enumerate(order.files):
        places.attempt.check()
        folder = os.path.join(places.attempt.tmp, COPIES, str(number))
        if is_url(file.path):
            outside = places.copying(file.path)
            paths.append(file.path if outside is None else _copy(file, folder, places))
            continue
        check_file(file)
        is_hidden = isolation is not None and not isolation.shows(file.path)
        paths.append(_copy_hidden(file, folder, places) if is_hidden else file.path)
    return paths


def check_file(file: DataFile) -> None:
    """Refuse a file that is missing, unreadable or of another size. Raises CannotRun."""
    if not file.path:
        raise CannotRun(f"input file {file.name}: it has no replica that this site can read", failure="input")
    try:
        status = os.stat(file.path)
    except OSError as error:
        raise missing_input(file, error.strerror or str(error)) from None
    if not stat.S_ISREG(status.st_mode):
        raise missing_input(file, "not a regular file")
    if not os.access(file.path, os.R_OK):
        raise missing_input(file, "the pilot's account may not read it")
    if file.size and status.st_size != file.size:
        raise missing_input(file, f"it has {status.st_size:,} bytes; the catalogue has {file.size:,}")


def missing_input(file: DataFile, reason: str) -> CannotRun:
    return CannotRun(f"input file {file.path}: {reason}", failure="input")


def _copy_hidden(file: DataFile, folder: str, places: OpenPlaces) -> str:
    """Copy a file of a storage place that isolated payloads do not see. Raises CannotRun.

    Other hidden files are refused: the pilot could read files of its account that no job may see.
    """
    if places.of_output(file.path) is None:
        raise CannotRun(
            f"input file {file.path}: isolated payloads do not see it, and it is in no storage place of the site;"
            " `visible` of the CE in the policy can show it",
            failure="node",
        )
    return _copy(file, folder, places)


def _copy(file: DataFile, folder: str, places: OpenPlaces) -> str:
    """Copy a file for the payload; returns the path of the copy. Raises CannotRun."""
    copy = os.path.join(folder, file.path.rpartition("/")[2])

    def write() -> None:
        os.makedirs(folder, 0o700, exist_ok=True)
        with open(copy, "wb") as target:
            for piece in read_pieces(file, places):
                target.write(piece)

    try:
        read_again(write, places)
    except OSError as error:
        raise CannotRun(f"input file {file.path}: cannot be copied: {error}", failure="node") from None
    return copy


def read_again(use: Callable[[], None], places: OpenPlaces) -> None:
    """Use input files, from their beginning again if one was spoilt on its way. Raises the last reason against it."""
    for failures in range(1, READS):
        try:
            return use()
        except SpoiltInput:
            places.attempt.pause(failures)
    return use()


def read_pieces(file: DataFile, places: OpenPlaces) -> Iterator[bytes]:
    """The verified bytes of an input file. Raises CannotRun and DataCancelled."""
    try:
        outside = places.copying(file.path) if is_url(file.path) else None
        pieces = _raw_pieces(file, places) if outside is None else outside.read(file.path)
        yield from verified(pieces, file.size, file.checksum)
    except PlaceFailed as error:
        raise CannotRun(
            f"input file {file.path}: {error}", failure="node" if error.is_of_node else "input"
        ) from None
    except WrongContent as error:
        raise SpoiltInput(f"input file {file.path}: {error}", failure="input") from None
    except (OSError, ValueError) as error:
        raise missing_input(file, str(error)) from None


def _raw_pieces(file: DataFile, places: OpenPlaces) -> Iterator[bytes]:
    with closing(_open(file.path)) as source:
        while True:
            places.attempt.check()
            piece = source.read(PIECE)
            if not piece:
                check_end(source)
                return
            yield piece


def check_end(source: Any) -> None:
    """Refuse the end of a download that has fewer bytes than were announced. Raises OSError."""
    # Python's reader of HTTP ends such a body as if it were whole.
    if missing := getattr(source, "length", None):
        raise OSError(f"the answer ends {missing:,} bytes too early")


def _open(path: str) -> Any:
    if not is_url(path):
        return open(path, "rb")
    if urlsplit(path).scheme not in ("http", "https"):
        raise ValueError("the pilot itself reads only local files, http and https")
    return urlopen(path, timeout=_URL_TIMEOUT)  # noqa: S310 (checked above)


def describe_order(order: DataOrder, paths: Sequence[str], key: Key, report: str) -> Dict[str, Any]:
    """The JSON file of the program."""
    files = [
        {
            "name": file.name,
            "path": path,
            "size": file.size,
            "checksum": file.checksum,
            "events": file.events,
            "first_event": file.first_event,
            "event_count": file.event_count,
            "lumis": file.lumis,
        }
        for file, path in zip(order.files, paths)  # noqa: B905 (Python 3.9)
    ]
    return {
        "format": FORMAT,
        "request": order.request,
        "request_name": order.request_name,
        "step": order.step,
        "type": order.type,
        "element": order.element,
        "job": key[0],
        "epoch": key[1],
        "files": files,
        "first_event": order.first_event,
        "events": order.events,
        "first_lumi": order.first_lumi,
        "lumis": order.lumis,
        "seed": order.seed,
        "outputs": order.outputs,
        "dataset": order.dataset,
        "report": report,
    }


def write_order(order: DataOrder, paths: Sequence[str], key: Key, tmp: str) -> Dict[str, str]:
    """Write the files for the program into `tmp`; returns its variables. Raises OSError."""
    report = os.path.join(tmp, REPORT_FILE)
    input_file, list_file = os.path.join(tmp, INPUT_FILE), os.path.join(tmp, LIST_FILE)
    with open(input_file, "x", encoding="utf-8") as file:
        json.dump(describe_order(order, paths, key, report), file, indent=1)
    listed = "".join(f"{path}\n" for path in paths)
    with open(list_file, "x", encoding="utf-8", errors="surrogateescape") as file:
        file.write(listed)
    variables = {
        "PILOTAGE_INPUT": input_file,
        "PILOTAGE_FILE_LIST": list_file,
        "PILOTAGE_REPORT": report,
        "PILOTAGE_REQUEST": order.request_name or str(order.request),
        "PILOTAGE_STEP": order.step,
        "PILOTAGE_TYPE": order.type,
        "PILOTAGE_FIRST_EVENT": str(order.first_event),
        "PILOTAGE_EVENTS": str(order.events),
        "PILOTAGE_FIRST_LUMI": str(order.first_lumi),
        "PILOTAGE_LUMIS": str(order.lumis),
        "PILOTAGE_SEED": str(order.seed),
    }
    if len(listed.encode("utf-8", "surrogateescape")) <= MAX_FILES_TEXT:
        variables["PILOTAGE_FILES"] = listed.rstrip("\n")
    return variables


def folders_of(paths: Sequence[str]) -> List[str]:
    """The folders of local files, for the binds of a container."""
    return sorted({os.path.dirname(path) for path in paths if path.startswith("/")})
