"""The interface of share correctors: the input of an instance and its answer.

A corrector is one class in a module of `core/shares/correctors`. Its instances are tables of the policy,
`[correction.NAME.INSTANCE]`. The class holds the keys of that table, their checks, and the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import msgspec

from pilotage.core.setting import Setting
from pilotage.core.shares.reports import EntityReport
from pilotage.core.shares.use import Unit

InstanceMemory = dict[tuple[str, str], float]
"""(part of the instance, entity) → a number that the instance carries from one correction to the next."""


class Fault(NamedTuple):
    """Why an instance is refused. `keys` lead from the table of the instance to the wrong key.

    `part` is the name of a part of the instance, such as a slice; the message begins with it.
    """

    message: str
    keys: tuple[str, ...] = ()
    hint: str = ""
    part: str = ""


@dataclass(frozen=True, slots=True)
class Competition:
    """The entities between which one instance corrects: the groups, or the owners of one group.

    `waiting` are the entities with waiting jobs. `share_of` gives the share of an entity, after the correctors that
    ran before. `use_over` and `decayed_use` give the average running jobs or cores by entity: over the last
    seconds of up-time, or with a weight that halves with each half-life. `is_known` is false for a group or owner
    that has left the policy. `elapsed` is the seconds of up-time since the last correction.
    """

    waiting: frozenset[str]
    share_of: Callable[[str], float]
    is_known: Callable[[str], bool]
    use_over: Callable[[float], Mapping[str, float]]
    decayed_use: Callable[[float], Mapping[str, float]]
    elapsed: float

    def known(self, use: Mapping[str, float]) -> dict[str, float]:
        """The part of `use` that belongs to entities of the policy."""
        return {entity: amount for entity, amount in use.items() if self.is_known(entity)}

    def expected(self, members: Collection[str]) -> dict[str, float]:
        """The share of each member as a part of the shares of all members."""
        # In an order that all processes have: a sum depends on it.
        shares = {entity: self.share_of(entity) for entity in sorted(members)}
        total = sum(shares.values())
        return {entity: share / total if total > 0 else 0.0 for entity, share in shares.items()}


class CorrectorInstance(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of one instance, and its rule. Subclasses add fields; each field is a key of the policy."""

    corrector: ClassVar[str]
    """Name in `correction.correctors` and of the tables `[correction.NAME.INSTANCE]`."""
    meaning: ClassVar[str]
    """One line for the reference of the policy."""
    example: ClassVar[str]
    """A valid instance between the groups, in TOML."""

    group: Annotated[str, Setting("correct between the owners of this group; empty: between the groups")] = ""
    unit: Annotated[Unit, Setting("jobs: running jobs are counted; cores: the cores that they hold")] = "jobs"

    @property
    def correction_range(self) -> tuple[float, float]:
        """The smallest and the largest factor of this instance."""
        raise NotImplementedError

    @property
    def reaches_shares(self) -> bool:
        """Whether use settles at the shares under every draw rule and for all lengths of jobs."""
        return False

    def faults(self, history: float) -> Iterator[Fault]:
        """Why `policy check` refuses the instance. Use is kept for `history` seconds."""
        return iter(())

    def warnings(self) -> Iterator[str]:
        """Settings that are allowed but have no effect."""
        return iter(())

    def properties(self) -> Iterator[str]:
        """Properties of the rule that `policy check` states."""
        return iter(())

    def factor_at_rest(self, expected: float, used: float) -> float:
        """The factor once an entity has used the part `used` for a long time. Not asked if `reaches_shares`."""
        raise NotImplementedError

    def correct(
        self, competition: Competition, memory: InstanceMemory
    ) -> tuple[tuple[EntityReport, ...], InstanceMemory]:
        """The factor of each entity, and the memory for the next correction.

        Entities that are not reported keep the factor 1.
        """
        raise NotImplementedError


def clamp(value: float, most: float) -> float:
    """`value`, between 1/most and most."""
    return max(min(value, most), 1.0 / most)


def ratio(expected: float, used: float | None, most: float) -> float:
    """expected/used, between 1/most and most. `used` is None if nobody used anything: 1.

    >>> ratio(0.5, 0.75, 5)
    0.6666666666666666
    """
    if used is None:
        return 1.0
    return clamp(expected / used, most) if used > 0 else most
