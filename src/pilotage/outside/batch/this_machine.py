"""Attributes of this machine as a host of its local CE, read from /proc and the system's calls."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from pilotage.core.glue.information import Value

_VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "ARM": "arm"}


def host_attributes(root: Path = Path("/")) -> dict[str, Value]:
    """Memory in MB, processors and system, in GLUE names, as a pilot here tells them. Unreadable facts are absent.

    The clock of the processor is left out, since it changes with the load.
    """
    memory, swap = _memory(root)
    attributes: dict[str, Value] = {"GlueHostArchitecturePlatformType": platform.machine()}
    if processors := os.cpu_count():
        attributes["GlueHostArchitectureSMPSize"] = processors
    if memory:
        attributes["GlueHostMainMemoryRAMSize"] = memory
        attributes["GlueHostMainMemoryVirtualSize"] = memory + swap
    return attributes | _processor(root) | _system(root)


def _memory(root: Path) -> tuple[int, int]:
    """(memory, swap space) in MB; 0 if unknown."""
    text = _read(root / "proc/meminfo")
    sizes = []
    for name in ("MemTotal", "SwapTotal"):
        match = re.search(rf"^{name}:\s+([0-9]{{1,15}}) kB", text, re.MULTILINE)
        sizes.append(int(match[1]) >> 10 if match else 0)
    return sizes[0], sizes[1]


def _processor(root: Path) -> dict[str, Value]:
    # The first processor is enough: /proc/cpuinfo of a wide machine has a megabyte.
    text = _read(root / "proc/cpuinfo", 4000)
    facts: dict[str, Value] = {}
    if match := re.search(r"^vendor_id\s*:\s*(\S+)$", text, re.MULTILINE):
        facts["GlueHostProcessorVendor"] = _VENDORS.get(match[1], match[1])
    if match := re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE):
        facts["GlueHostProcessorModel"] = match[1].strip()
    return facts


def _system(root: Path) -> dict[str, Value]:
    pairs = (line.partition("=") for line in _read(root / "etc/os-release").splitlines() if "=" in line)
    fields = {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}
    identity, name = fields.get("ID", ""), fields.get("NAME", "").replace(" ", "")
    release = fields.get("VERSION_ID", "")
    facts = {
        # As `lsb_release` writes it, such as Debian or AlmaLinux.
        "GlueHostOperatingSystemName": name[: len(identity)]
        if name.lower().startswith(identity.lower())
        else identity,
        "GlueHostOperatingSystemRelease": release,
        "GlueHostOperatingSystemVersion": fields.get("VERSION_CODENAME", "") or release,
    }
    return {name: text for name, text in facts.items() if text}


def _read(path: Path, most: int = 100_000) -> str:
    try:
        with path.open(errors="replace") as file:
            return file.read(most)
    except OSError:
        return ""
