"""Core time and parts as people read them."""

from __future__ import annotations


def core_hours(core_seconds: float) -> str:
    hours = core_seconds / 3600
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:,.2f}"


def percent(part: float) -> str:
    return f"{100 * part:.1f} %"


def signed_percent(part: float) -> str:
    return f"{100 * part:+.0f} %" if abs(part) >= 0.1 else f"{100 * part:+.1f} %"
