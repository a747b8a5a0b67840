"""The local CE describes this machine as a pilot here describes its node: otherwise a match would not hold there."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotage.outside.batch.this_machine import host_attributes
from pilotage.pilot.host_facts import BATCH_HOST, host_facts

CPU = (
    "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Pentium III (Coppermine)\ncpu MHz\t\t: 999.9\n"
)
MEMORY = "MemTotal:       1025024 kB\nSwapTotal:      1025023 kB\n"
DEBIAN = 'NAME="Debian GNU/Linux"\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\nID=debian\n'
ALMA = 'NAME="AlmaLinux"\nVERSION_ID="9.4"\nID="almalinux"\n'
STRANGE = "NAME=\nID=x\n=\nVERSION_ID\n"


def machine(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        file = folder / name.replace("_in_", "/").replace("osrelease", "os-release")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return folder


@pytest.mark.parametrize("system", [DEBIAN, ALMA, STRANGE, ""])
def test_host_attributes_are_the_host_facts_of_a_pilot(system: str, tmp_path: Path) -> None:
    # The names of the files: etc/os-release, proc/cpuinfo, proc/meminfo.
    root = machine(tmp_path, etc_in_osrelease=system, proc_in_cpuinfo=CPU, proc_in_meminfo=MEMORY)
    own, pilots = host_attributes(root), host_facts(str(root))
    assert {name: str(value) for name, value in own.items()} == {
        name: text for name, text in pilots.items() if name not in (BATCH_HOST, "GlueHostProcessorClockSpeed")
    }
    assert own["GlueHostMainMemoryRAMSize"] == 1001
    assert own["GlueHostProcessorVendor"] == "intel"


def test_a_machine_that_tells_nothing_has_few_attributes(tmp_path: Path) -> None:
    assert set(host_attributes(tmp_path)) == {
        "GlueHostArchitecturePlatformType",
        "GlueHostArchitectureSMPSize",
    }
