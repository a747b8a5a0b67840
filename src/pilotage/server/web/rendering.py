"""Templates, and the header fields of every page."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pilotage.core.jobs.durations import format_hours
from pilotage.core.plurals import plural
from pilotage.server.web import formats
from pilotage.server.web.assets import Assets

FOLDER = Path(__file__).parent / "templates"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""No script and no style that is not a file of ours, and no other host."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def make_templates(assets: Assets) -> Environment:
    """The templates of all pages. Every value is escaped; a name that is not given is an error."""
    templates = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        duration=formats.duration,
        size=formats.size,
        sign=formats.sign,
        tone=formats.tone,
        instant=formats.instant,
        count=formats.count,
        hours=format_hours,
        percent=formats.percent,
    )
    templates.globals.update(asset=assets.hashed, plural=plural)
    return templates
