"""One HTML file for a reader without a server: no script, no outside address, every name escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_STYLE: Final = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;max-width:62rem;margin:2rem auto;
padding:0 1rem;background:#fff;color:#1f2328;overflow-wrap:anywhere}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.5rem}h3{font-size:1rem;margin:1.6rem 0 .2rem}
.note{color:#5b6472;margin:.2rem 0 .6rem;max-width:46rem}
.partial{border-left:4px solid #d9730d;padding:.4rem .8rem}
.wide{overflow-x:auto}
bdi{display:inline-block;max-width:100%}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .8rem .2rem 0;text-align:right;border-bottom:1px solid #e4e7ec;white-space:nowrap;
vertical-align:top}
th{font-weight:600}.text{text-align:left;white-space:normal;min-width:6rem;max-width:32rem}
pre{white-space:pre-wrap;background:#f5f7f9;padding:.5rem .8rem;margin:.3rem 0;max-height:20rem;overflow:auto}
svg{max-width:100%;height:auto;display:block;margin:1rem 0}
@media (prefers-color-scheme:dark){body{background:#14171c;color:#e6e8eb}th,td{border-color:#30363d}
.note{color:#a3afbc}pre{background:#1c2229}}
"""


@dataclass(frozen=True, slots=True)
class ReportTable:
    title: str
    note: str
    """One sentence below the title."""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int = 1
    """The first columns are text, the others numbers."""


def html_file(title: str, parts: Iterable[str]) -> str:
    """The file with this title. `parts` are HTML."""
    return "".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            *parts,
            "</body></html>\n",
        ]
    )


def table(shown: ReportTable) -> str:
    """A table below its title. Each text stands apart, so that its direction of writing does not reach others."""
    looks = ['class="text"' if place < shown.texts else "" for place in range(len(shown.columns))]
    head = "".join(f"<th {look}>{escape(name)}</th>" for look, name in zip(looks, shown.columns, strict=True))
    rows = "".join(
        f"<tr>{''.join(f'<td {look}>{name(cell)}</td>' for look, cell in zip(looks, row, strict=True))}</tr>"
        for row in shown.rows
    )
    note = f'<p class="note">{escape(shown.note)}</p>' if shown.note else ""
    return (
        f"<h3>{escape(shown.title)}</h3>{note}"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def name(text: str) -> str:
    """A text that a user chose."""
    return f"<bdi>{escape(text)}</bdi>" if text else ""


def titled_list(title: str, note: str, sentences: Sequence[str]) -> Iterator[str]:
    """Sentences below a title; nothing without sentences."""
    if sentences:
        yield f"<h3>{escape(title)}</h3>"
        yield f'<p class="note">{escape(note)}</p>' if note else ""
        yield items(sentences)


def items(sentences: Iterable[str]) -> str:
    listed = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<ul>{listed}</ul>" if listed else ""
