"""A report as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from pilotage.documents.html_file import html_file, name, table
from pilotage.report.figures import WorkReport
from pilotage.report.timeline import draw_timeline


def page_of(report: WorkReport) -> str:
    return html_file(report.title, _parts(report))


def _parts(report: WorkReport) -> Iterator[str]:
    yield f"<h1>{name(report.title)}</h1>"
    rows = "".join(f'<tr><th class="text">{escape(key)}</th><td class="text">{name(text)}</td></tr>'
                   for key, text in report.facts if text)  # fmt: skip
    yield f"<table><tbody>{rows}</tbody></table>"
    drawing = draw_timeline(report.sums.timeline) if report.sums else None
    if drawing is not None:
        yield f"<h2>Timeline</h2>{drawing.render()}"
    yield "<h2>Failures by cause</h2>"
    yield f'<p class="note">{escape(report.causes_note)}</p>' if report.causes_note else ""
    for cause in report.causes:
        yield f"<p><strong>{cause.count:,} ×</strong> {name(cause.cause)}, such as {escape(cause.example)}</p>"
        yield f"<pre>{name(cause.last_line)}</pre>" if cause.last_line else ""
    yield "" if report.causes else "<p>None.</p>"
    yield "<h2>Figures</h2>"
    yield from map(table, report.tables)
