"""Reads answers of CRIC's API: core/rcsite, core/service?type=CE, core/downtime (JSON).

Each is one object with the records by name; downtimes are grouped by site.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from pilotage.core.errors import InvalidInput
from pilotage.core.topology.model import Downtime, ListedCe, ListedSite, Topology, is_ce, usable_name


def read_cric(text: str, into: Topology) -> None:
    """Add the records of a document. Raises InvalidInput for JSON that is damaged, or has no records by name."""
    try:
        records = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the document is no whole JSON: {error}") from None
    if not isinstance(records, dict):
        raise InvalidInput("the document is no answer of CRIC: it has no records by name")
    for name, record in records.items():
        if reason := _record(str(name), record, into):
            into.left_out.append(reason)


def _record(name: str, record: Any, into: Topology) -> str:
    if isinstance(record, dict) and "endpoint" in record:
        return _service(name, record, into)
    if isinstance(record, dict) and ("rc_tier_level" in record or "country" in record):
        return _site(name, record, into)
    downtimes = list(_downtimes(record))
    if not downtimes:
        return f"{name[:80]}: neither a site nor a CE nor a list of downtimes"
    reasons = [_downtime(name, downtime, into) for downtime in downtimes]
    return "; ".join(reason for reason in reasons if reason)


def _site(name: str, record: dict[str, Any], into: Topology) -> str:
    site = usable_name(record.get("name") or name)
    if site is None:
        return "a site without a usable name"
    state = str(record.get("state", "ACTIVE"))
    into.add_site(ListedSite(site, "" if state.upper() == "ACTIVE" else state))
    return ""


def _service(name: str, record: dict[str, Any], into: Topology) -> str:
    flavour, address = str(record.get("flavour") or ""), str(record.get("endpoint") or "")
    if record.get("type") != "CE" and not is_ce(flavour):
        return ""
    of_site = record.get("rcsite")
    site = usable_name(of_site.get("name") if isinstance(of_site, dict) else of_site)
    host = usable_name(_host(address))
    if site is None or host is None:
        return f"the CE {name[:80]} has no site or no host"
    state = str(record.get("state", "ACTIVE"))
    if state.upper() != "ACTIVE":
        return f"{host} ({flavour}) of {site}: {state}"
    into.add_ce(ListedCe(site, host, address, flavour))
    return ""


def _host(address: str) -> str | None:
    try:
        return urlsplit(address if "://" in address else f"//{address}").hostname
    except ValueError:
        return None


def _downtimes(record: Any) -> Iterator[dict[str, Any]]:
    entries = record.values() if isinstance(record, dict) else record if isinstance(record, list) else ()
    return (entry for entry in entries if isinstance(entry, dict) and "severity" in entry)


def _downtime(site: str, record: dict[str, Any], into: Topology) -> str:
    severity = str(record["severity"])
    if severity.upper() != "OUTAGE":
        return f"downtime of {site}: severity {severity} changes nothing"
    services = str(record.get("affected_services") or "")
    if services and not any(is_ce(word) for word in services.replace(";", ",").split(",")):
        return ""
    try:
        start, end = _instant(record["start_time"]), _instant(record["end_time"])
    except (KeyError, TypeError, ValueError):
        return f"downtime of {site}: start_time or end_time is not a time"
    reason = str(record.get("description") or "")
    into.add_downtime(f"downtime of {site}", Downtime(site, frozenset(), start, end, reason))
    return ""


def _instant(text: str) -> float:
    """Seconds since 1970; a time without an offset is in UTC."""
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
