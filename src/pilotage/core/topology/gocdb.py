"""Reads answers of GOCDB's programmatic interface: get_site, get_service, get_downtime (XML).

The elements are described at https://docs.egi.eu/internal/configuration-database/api/.
"""

from __future__ import annotations

from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from pilotage.core.errors import InvalidInput
from pilotage.core.topology.model import Downtime, ListedCe, ListedSite, Topology, is_ce, usable_name


def read_gocdb(text: str, into: Topology) -> None:
    """Add the records of a document. Raises InvalidInput for XML that is damaged, or is no answer of GOCDB."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise InvalidInput("the document declares XML entities; answers of GOCDB have none")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314
    except ElementTree.ParseError as error:
        raise InvalidInput(f"the document is no whole XML: {error}") from None
    readers = {"SITE": _site, "SERVICE_ENDPOINT": _service, "DOWNTIME": _downtime}
    if root.tag != "results":
        raise InvalidInput(f"the document is no answer of GOCDB: it begins with <{root.tag[:40]}>")
    for record in root:
        read = readers.get(record.tag)
        reason = read(record, into) if read else f"<{record.tag[:40]}> is no site, service or downtime"
        if reason:
            into.left_out.append(reason)


def _said(record: Element, name: str) -> str:
    return (record.findtext(name) or "").strip()


def _site(record: Element, into: Topology) -> str:
    name = usable_name(_said(record, "SHORT_NAME") or record.get("NAME"))
    if name is None:
        return "a site without a usable name"
    status, kind = _said(record, "CERTIFICATION_STATUS"), _said(record, "PRODUCTION_INFRASTRUCTURE")
    unusable = status if status not in ("", "Certified") else kind if kind not in ("", "Production") else ""
    into.add_site(ListedSite(name, unusable))
    return ""


def _service(record: Element, into: Topology) -> str:
    site, host = usable_name(_said(record, "SITENAME")), usable_name(_said(record, "HOSTNAME"))
    flavour = _said(record, "SERVICE_TYPE")
    if site is None or host is None:
        return f"a service of type {flavour or 'unknown'} without site or host"
    if not is_ce(flavour):
        return ""
    if "N" in (_said(record, "IN_PRODUCTION"), _said(record, "NODE_MONITORED")):
        return f"{host} ({flavour}) of {site}: not in production or not monitored"
    into.add_ce(ListedCe(site, host, _said(record, "URL"), flavour))
    return ""


def _downtime(record: Element, into: Topology) -> str:
    """A downtime stands beside its only service, or has a list of SERVICES."""
    services = record.findall("SERVICES/SERVICE") or [record]
    label = f"downtime {record.get('PRIMARY_KEY') or _said(record, 'PRIMARY_KEY') or 'without a key'}"
    severity = _said(record, "SEVERITY")
    if severity != "OUTAGE":
        return f"{label}: severity {severity or 'unknown'} changes nothing"
    try:
        start, end = float(int(_said(record, "START_DATE"))), float(int(_said(record, "END_DATE")))
    except ValueError:
        return f"{label}: START_DATE or END_DATE is not in seconds since 1970"
    hosts: dict[str, set[str]] = {}
    for service in services:
        site = usable_name(_said(service, "HOSTED_BY") or _said(service, "SITENAME"))
        flavour = _said(service, "SERVICE_TYPE")
        if site is not None and (is_ce(flavour) or not flavour):
            hosts.setdefault(site, set()).add(_said(service, "HOSTNAME"))
    for site, names in hosts.items():
        concerned = frozenset() if "" in names else frozenset(names)
        into.add_downtime(label, Downtime(site, concerned, start, end, _said(record, "DESCRIPTION")))
    return ""
