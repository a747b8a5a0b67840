"""Options of CEs that are machines without a batch system, reached over ssh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, NamedTuple

from pilotage.core.errors import InvalidInput
from pilotage.core.policy.batch_options import BatchOptions
from pilotage.core.policy.reach import SshReach, parse_reach
from pilotage.core.setting import Setting

MOST_HOSTS = 500


class PlainMachine(NamedTuple):
    """One machine of the list."""

    reach: SshReach
    cores: int
    """The cores that pilots may use; 0: all."""


class MachinesOptions(BatchOptions, frozen=True):
    meaning: ClassVar[str] = "processes on machines without a batch system, started over ssh"
    own_endpoints: ClassVar[str] = "each machine is an entry of its own in `hosts`"
    partition_key: ClassVar[str] = ""
    asks_each: ClassVar[bool] = True

    hosts: Annotated[
        tuple[str, ...],
        Setting(
            'the machines: "HOST" or "HOST CORES" as for the command ssh, such as "ada@ws1 8"; options may be -F, -J,'
            " -l and -p; without CORES pilots may use all"
        ),
    ] = ()

    @property
    def machines(self) -> tuple[PlainMachine, ...]:
        """The machines of `hosts`. `InvalidInput`: one entry names none."""
        return tuple(map(_machine, self.hosts))

    @property
    def own_reaches(self) -> tuple[SshReach, ...]:
        return tuple(machine.reach for machine in self.machines)

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if len(self.hosts) > MOST_HOSTS:
            yield "hosts", f"at most {MOST_HOSTS} hosts"
        try:
            names = [machine.reach.machine for machine in self.machines]
        except InvalidInput as error:
            yield "hosts", f"hosts: {error.message}"
            return
        if twice := next((name for name in names if names.count(name) > 1), ""):
            yield "hosts", f"hosts names {twice} twice"


def _machine(entry: str) -> PlainMachine:
    words = entry.split()
    cores = int(words.pop()) if len(words) > 1 and words[-1].isascii() and words[-1].isdecimal() else 0
    if cores > 10**6:
        raise InvalidInput(f"{entry[:80]!r} has too many cores")
    try:
        return PlainMachine(parse_reach(" ".join(("ssh", *words))), cores)
    except InvalidInput as error:
        form = "write HOST or HOST CORES, such as ada@ws1 8"
        raise InvalidInput(f"{entry[:80]!r} is no machine: {form} ({error.message})") from None
