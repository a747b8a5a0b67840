"""Facts of the whole machine in names of the GLUE schema, for the Requirements of jobs.

They describe the whole host. Its `Node` has the part that the pilot may use.
"""

from __future__ import annotations

import os
import platform
import re
from typing import Dict, Mapping

_VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "ARM": "arm"}
BATCH_HOST = "BatchHost"
"""The name of the host in the batch system, which may differ from the machine's own name."""


def host_facts(root: str = "/") -> Dict[str, str]:
    """The facts that this machine tells. One that it does not tell is absent."""
    cpu = _read(root, "proc/cpuinfo")
    memory = _read(root, "proc/meminfo")
    system = _fields(_read(root, "etc/os-release"))
    ram, swap = _kilobytes(memory, "MemTotal"), _kilobytes(memory, "SwapTotal")
    clock = re.search(r"^cpu MHz\s*:\s*(\d+)", cpu, re.MULTILINE)
    facts = {
        "GlueHostArchitecturePlatformType": platform.machine(),
        "GlueHostArchitectureSMPSize": str(os.cpu_count() or ""),
        "GlueHostMainMemoryRAMSize": str(ram // 1024) if ram else "",
        "GlueHostMainMemoryVirtualSize": str(ram // 1024 + swap // 1024) if ram else "",
        "GlueHostProcessorVendor": _vendor(cpu),
        "GlueHostProcessorModel": _cpu_line(cpu, "model name"),
        "GlueHostProcessorClockSpeed": clock.group(1) if clock else "",
        "GlueHostOperatingSystemName": _system_name(system),
        "GlueHostOperatingSystemRelease": system.get("VERSION_ID", ""),
        "GlueHostOperatingSystemVersion": system.get("VERSION_CODENAME", "") or system.get("VERSION_ID", ""),
    }
    return {name: text for name, text in facts.items() if text}


def _system_name(system: Mapping[str, str]) -> str:
    """The name of a distribution as `lsb_release` writes it, such as Debian or AlmaLinux."""
    identity, name = system.get("ID", ""), system.get("NAME", "").replace(" ", "")
    return name[: len(identity)] if name.lower().startswith(identity.lower()) else identity


def _vendor(cpu: str) -> str:
    vendor = _cpu_line(cpu, "vendor_id")
    return _VENDORS.get(vendor, vendor)


def _cpu_line(cpu: str, name: str) -> str:
    match = re.search(rf"^{name}\s*:\s*(.+)$", cpu, re.MULTILINE)
    return match.group(1).strip() if match else ""


def _kilobytes(memory: str, name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB", memory, re.MULTILINE)
    return int(match.group(1)) if match else 0


def _fields(text: str) -> Dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}


def _read(*parts: str) -> str:
    # The first processor is enough: /proc/cpuinfo of a wide machine has a megabyte.
    try:
        with open(os.path.join(*parts), encoding="utf-8", errors="replace") as file:
            return file.read(8000)
    except OSError:
        return ""
