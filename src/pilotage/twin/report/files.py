"""Writes a report into its folder: one HTML file, the pictures, one JSON document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import msgspec

from pilotage.core.errors import Conflict, InvalidInput
from pilotage.documents.html_file import html_file, items, table, titled_list
from pilotage.twin.measures import QUANTILES
from pilotage.twin.report.differences import SHOWN, PolicyComparison, compare_policies
from pilotage.twin.report.pictures import Picture, pictures_of
from pilotage.twin.report.study import Study
from pilotage.twin.report.tables import tables_of


def page_of(study: Study, pictures: Sequence[Picture], comparisons: Sequence[PolicyComparison]) -> str:
    """The page with everything that a report tells."""
    return html_file(
        f"{study.trace}: what if",
        [
            *_head(study),
            *_comparisons(comparisons),
            "<h2>Pictures</h2>" if pictures else "",
            *(picture.drawing.render() for picture in pictures),
            *_tables(study),
            *titled_list("Fits", "Where run times, waits and failures of the runs come from.", study.fits),
            *titled_list("Not simulated", "", study.not_simulated),
        ],
    )


def _head(study: Study) -> Iterator[str]:
    names = ", ".join(policy.name for policy in study.policies)
    yield f"<h1>{escape(study.trace)}: what if</h1>"
    yield f"<p>{study.jobs:,} jobs, {len(study.seeds)} seeds. Policies: {escape(names)}.</p>"
    if study.partial:
        yield f'<p class="partial">{escape(study.partial)}</p>'
    yield from (f'<p class="partial">{escape(sentence)}</p>' for sentence in study.standstills)
    yield from (f'<p class="note">{escape(note)}.</p>' for note in study.notes)


def _comparisons(comparisons: Sequence[PolicyComparison]) -> Iterator[str]:
    for comparison in comparisons:
        shown = comparison.differences[:SHOWN]
        yield f"<h2>{escape(comparison.name)} instead of {escape(comparison.base)}</h2>"
        if not comparison.seeds:
            yield '<p class="note">No seed has finished with both policies.</p>'
            continue
        yield items(difference.text for difference in shown) or "<p>No difference.</p>"
        if more := len(comparison.differences) - len(shown):
            yield f'<p class="note">{more:,} smaller differences are in the JSON document.</p>'
        yield from titled_list("Unchanged", "", comparison.unchanged)


def _tables(study: Study) -> Iterator[str]:
    for policy in study.finished:
        yield f"<h2>{escape(policy.name)}</h2>"
        yield from map(table, tables_of(policy))


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
