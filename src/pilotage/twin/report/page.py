"""The report as one HTML file: no script, no outside address, every name escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from pilotage.twin.report.differences import SHOWN, PolicyComparison
from pilotage.twin.report.pictures import Picture
from pilotage.twin.report.study import Study
from pilotage.twin.report.tables import ReportTable, tables_of

_STYLE: Final = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;max-width:62rem;margin:2rem auto;
padding:0 1rem;background:#fff;color:#1f2328}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.5rem}h3{font-size:1rem;margin:1.6rem 0 .2rem}
.note{color:#667085;margin:.2rem 0 .6rem;max-width:46rem}
.partial{border-left:4px solid #d9730d;padding:.4rem .8rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .8rem .2rem 0;text-align:right;border-bottom:1px solid #e4e7ec;white-space:nowrap}
th{font-weight:600}.text{text-align:left}
svg{max-width:100%;height:auto;display:block;margin:1rem 0}
@media (prefers-color-scheme:dark){body{background:#14171c;color:#e6e8eb}th,td{border-color:#30363d}
.note{color:#98a2b3}}
"""


def page_of(study: Study, pictures: Sequence[Picture], comparisons: Sequence[PolicyComparison]) -> str:
    """The page with everything that a report tells."""
    return "".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{escape(study.trace)}: what if</title><style>{_STYLE}</style></head><body>",
            *_head(study),
            *_comparisons(comparisons),
            "<h2>Pictures</h2>" if pictures else "",
            *(picture.drawing.render() for picture in pictures),
            *_tables(study),
            *_list("Fits", "Where run times, waits and failures of the runs come from.", study.fits),
            *_list("Not simulated", "", study.not_simulated),
            "</body></html>\n",
        ]
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
        yield _items(difference.text for difference in shown) or "<p>No difference.</p>"
        if more := len(comparison.differences) - len(shown):
            yield f'<p class="note">{more:,} smaller differences are in the JSON document.</p>'
        yield from _list("Unchanged", "", comparison.unchanged)


def _tables(study: Study) -> Iterator[str]:
    for policy in study.finished:
        yield f"<h2>{escape(policy.name)}</h2>"
        yield from map(_table, tables_of(policy))


def _table(table: ReportTable) -> str:
    looks = ['class="text"' if place < table.texts else "" for place in range(len(table.columns))]
    head = "".join(f"<th {look}>{escape(name)}</th>" for look, name in zip(looks, table.columns, strict=True))
    rows = "".join(
        f"<tr>{''.join(f'<td {look}>{escape(cell)}</td>' for look, cell in zip(looks, row, strict=True))}</tr>"
        for row in table.rows
    )
    return (
        f'<h3>{escape(table.title)}</h3><p class="note">{escape(table.note)}</p>'
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _list(title: str, note: str, sentences: Sequence[str]) -> Iterator[str]:
    if sentences:
        yield f"<h3>{escape(title)}</h3>"
        yield f'<p class="note">{escape(note)}</p>' if note else ""
        yield _items(sentences)


def _items(sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<ul>{items}</ul>" if items else ""
