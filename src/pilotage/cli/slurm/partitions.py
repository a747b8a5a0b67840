"""Partitions: the CEs that `--partition` names, and the name that a job's CE has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pilotage.core.errors import InvalidInput

if TYPE_CHECKING:
    from pilotage.wire.sites import PartitionSummary

VARIABLE: Final = "SLURM_JOB_PARTITION"
NO_PARTITION: Final = "(null)"
_EVERY_SITE: Final = "*"


class Partitions:
    """All partitions of the pool, or the partitions that a job names."""

    def __init__(self, listed: Sequence[PartitionSummary]) -> None:
        self.by_name = {partition.name: partition for partition in listed}

    @property
    def names(self) -> str:
        """Their names, in the form of `--partition`."""
        return ",".join(self.by_name)

    def chosen(self, text: str) -> Partitions:
        """The partitions of `--partition TEXT`; the default one if it is empty. Raises InvalidInput."""
        names = [part.strip() for part in text.split(",") if part.strip()]
        for name in names:
            if name not in self.by_name:
                raise InvalidInput(f"invalid partition specified: {name}", hint=self._hint)
        listed = [self.by_name[name] for name in dict.fromkeys(names)] if names else self._default
        if not listed:
            raise InvalidInput("no partition is named, and there is no default partition", hint=self._hint)
        return Partitions(listed)

    def fields(self) -> dict[str, Any]:
        """`sites` or `grid_ces` of a job that may run in each of these partitions; none for the whole pool."""
        listed = self.by_name.values()
        if any(_EVERY_SITE in partition.sites for partition in listed):
            return {}
        if all(partition.sites for partition in listed):
            return {"sites": _each_once(partition.sites for partition in listed)}
        return {"grid_ces": _each_once(partition.ces for partition in listed)}

    def ces(self) -> dict[str, list[str]]:
        """The CEs of each, by which a job knows the partition in which it runs; none if there is one only."""
        return (
            {name: partition.ces for name, partition in self.by_name.items()} if len(self.by_name) > 1 else {}
        )

    def of_job(self, named: str, ce: str, *, ended: bool) -> str:
        """The partition of a job: the first it has named with its CE; before it starts, all it has named.

        A job that has named none is in the smallest partition with its CE. One that ended before its start is in the
        first one.
        """
        if not ce:
            waiting = named or Partitions(self._default).names or NO_PARTITION
            return waiting.partition(",")[0] if ended else waiting
        names = (
            named.split(",") if named else sorted(self.by_name, key=lambda name: len(self.by_name[name].ces))
        )
        having = (name for name in names if name in self.by_name and ce in self.by_name[name].ces)
        return next(having, named or ce)

    @property
    def _default(self) -> list[PartitionSummary]:
        return [partition for partition in self.by_name.values() if partition.default]

    @property
    def _hint(self) -> str:
        return f"one of {', '.join(sorted(self.by_name))}"


def _each_once(lists: Iterable[list[str]]) -> list[str]:
    return list(dict.fromkeys(name for names in lists for name in names))
