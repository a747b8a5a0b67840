"""Options of CEs that are HTCondor schedds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pilotage.core.forwarding.table import ForwardTable
from pilotage.core.policy.batch_options import BatchOptions
from pilotage.core.setting import Setting

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,254}")
_ADDRESS = re.compile(r"[A-Za-z0-9_.:,<>?&=\[\]-]{1,300}")
_LINE = re.compile(r"[ -~]{0,1000}")
"""A text that fits on a line of a submit description."""
_ATTRIBUTE = re.compile(r"\+?([A-Za-z_][A-Za-z0-9_]{0,99})\s*=(?!=)\s*(\S.*)")

_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}"

_FORWARDING = ForwardTable(
    rules={
        "GlueHostMainMemoryRAMSize": "attribute TotalMemory",
        "GlueHostArchitectureSMPSize": "attribute TotalCpus",
        "GlueHostOperatingSystemName": "attribute OpSysName",
    },
    expression_option="--requirements",
    hook_options={
        "--accounting-group": _WORD,
        "--priority": "-?[0-9]{1,6}",
        "--request-disk": "[0-9]{1,12}[KMGT]?B?",
        "--request-gpus": "[0-9]{1,4}",
    },
)
"""HTCondor compares the attributes of machines itself. Options with `_` in place of `-` are submit commands."""


class HtcondorOptions(BatchOptions, frozen=True):
    meaning: ClassVar[str] = "batch jobs of HTCondor"
    own_endpoints: ClassVar[str] = (
        "HTCondor's commands find one schedd by its name; another schedd is a CE with its own"
        " [ces.NAME.htcondor] schedd"
    )
    grid_flavours: ClassVar[tuple[str, ...]] = ("HTCONDOR-CE", "org.opensciencegrid.htcondorce")
    forwarding: ClassVar[ForwardTable] = _FORWARDING

    conf: Annotated[
        str,
        Setting(
            "absolute path of the configuration of HTCondor's commands; empty: CONDOR_CONFIG of the server, or the"
            " system's own"
        ),
    ] = ""
    schedd: Annotated[
        str, Setting("name of its schedd, as for `condor_q -name`; empty: the one of the server's machine")
    ] = ""
    pool: Annotated[
        str,
        Setting(
            "address of the collector that knows its schedd, as for `condor_q -pool`; empty: the default"
        ),
    ] = ""
    owner: Annotated[
        str,
        Setting(
            "account of its pilots at the schedd; empty: that of the server, or with `schedd` or a token any, as"
            " pilots are then known by their stamp alone"
        ),
    ] = ""
    token_folder: Annotated[
        str,
        Setting(
            "absolute path of a folder with tokens of HTCondor (IDTOKENS); empty: the default of its commands"
        ),
    ] = ""
    scitoken: Annotated[
        str, Setting("absolute path of a file with a SciToken or WLCG token; it is read at each command")
    ] = ""
    accounting_group: Annotated[str, Setting("accounting group that its pilots are charged to")] = ""
    requirements: Annotated[
        str, Setting("further condition over machines, as the `requirements` of a submit description")
    ] = ""
    attributes: Annotated[
        str,
        Setting(
            'further attributes of its pilots, with semicolons between them, such as WantFlocking = true; Project = "x"'
        ),
    ] = ""
    scripts: Annotated[
        Literal["", "file", "fetch"],
        Setting(
            "file: the script of pilots is a file that only the account of the server can read, and HTCondor transfers"
            " it; fetch: pilots fetch their program from the server, and the arguments of the batch job hold a secret,"
            " which whoever may read the queue can see; empty: file without `schedd`, fetch with it"
        ),
    ] = ""
    script_folder: Annotated[
        str,
        Setting(
            "absolute path of a folder on the schedd's machine for the scripts of pilots; empty: .cache/pilotage in the"
            " home of the account"
        ),
    ] = ""
    log_folder: Annotated[
        str,
        Setting("folder on the schedd's machine for the output of pilots; empty: the output is thrown away"),
    ] = ""

    @property
    def fetches_program(self) -> bool:
        return self.scripts == "fetch" or (not self.scripts and bool(self.schedd))

    @property
    def own_attributes(self) -> dict[str, str]:
        """The expressions of `attributes`, by name."""
        parts = (_ATTRIBUTE.fullmatch(part.strip()) for part in split_attributes(self.attributes))
        return {match[1]: match[2] for match in parts if match is not None}

    def mistakes(self) -> Iterator[tuple[str, str]]:
        for key in ("conf", "token_folder", "scitoken", "script_folder", "log_folder"):
            path = getattr(self, key)
            if path and (not path.startswith("/") or not re.fullmatch(r"[!#%-&(-~]+", path)):
                yield key, f"{key} must be an absolute path without blanks, quotes and `$`"
        for key in ("schedd", "owner", "accounting_group"):
            value = getattr(self, key)
            if value and not _NAME.fullmatch(value):
                yield key, f"{key} must be a name of letters, digits and `_.@-`"
        if self.pool and not _ADDRESS.fullmatch(self.pool):
            yield "pool", "pool must be an address, such as cm.example.org:9618"
        for key in ("requirements", "attributes"):
            value = getattr(self, key)
            if not _LINE.fullmatch(value) or "$" in value or value.endswith("\\"):
                yield key, f"{key} must be one line of at most 1000 characters without `$`"
        for part in split_attributes(self.attributes):
            if not _ATTRIBUTE.fullmatch(part.strip()):
                yield "attributes", f"attributes has {part.strip()[:50]!r}, which is no NAME = EXPRESSION"


def split_attributes(text: str) -> list[str]:
    """The parts between semicolons that stand outside of quotes."""
    parts = re.findall(r'(?:"(?:[^"\\]|\\.)*"|[^;"]|")+', text)
    return [part for part in parts if part.strip()]
