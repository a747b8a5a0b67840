"""Writes a report into its folder: one HTML file, the pictures, one JSON document."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from pilotage.core.errors import Conflict, InvalidInput
from pilotage.twin.measures import QUANTILES
from pilotage.twin.report.differences import PolicyComparison, compare_policies
from pilotage.twin.report.page import page_of
from pilotage.twin.report.pictures import pictures_of
from pilotage.twin.report.study import Study

PAGE: Final = "report.html"
DOCUMENT: Final = "report.json"


def open_folder(folder: Path) -> None:
    """Make the folder of a report. Raises `Conflict` if it has files, as an earlier report must not be mixed in."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise Conflict(f"{folder} is not empty", hint="name a new folder with --out")
    except FileExistsError:
        raise InvalidInput(f"{folder} is not a folder", hint="name a new folder with --out") from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot write to {folder}: {getattr(error, 'strerror', error)}") from None


def write_report(study: Study, folder: Path) -> list[Path]:
    """Write all files of a report and return them, the page first."""
    pictures, comparisons = pictures_of(study), compare_policies(study.finished)
    texts = {
        PAGE: page_of(study, pictures, comparisons),
        DOCUMENT: msgspec.json.format(msgspec.json.encode(_document(study, comparisons))).decode() + "\n",
        **{picture.file: picture.drawing.render() for picture in pictures},
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def _document(study: Study, comparisons: list[PolicyComparison]) -> dict[str, Any]:
    """All figures: times in virtual seconds from the begin of the trace, use in core-seconds."""
    return {
        "trace": study.trace,
        "jobs": study.jobs,
        "seeds": study.seeds,
        "partial": bool(study.partial),
        "standstills": study.standstills,
        "notes": study.notes,
        "fits": study.fits,
        "not_simulated": study.not_simulated,
        "quantiles": QUANTILES,
        "policies": study.policies,
        "comparisons": comparisons,
    }
