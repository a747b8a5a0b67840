"""The information of a CE: facts from its batch system and from the policy, in names of the GLUE schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pilotage.core.classads import ClassAd, Expression, ListOf, Literal

Value: TypeAlias = int | float | str | bool | tuple[str, ...]

DEFAULT_EXPIRY = 300.0
"""Seconds, as in the CE ad of "Approaches to batch system description"."""


def literal(value: Value) -> Expression:
    """The value of an attribute as an expression."""
    if isinstance(value, tuple):
        return ListOf(tuple(Literal(item) for item in value))
    return Literal(value)


def ad_of(attributes: Mapping[str, Value]) -> ClassAd:
    """The attributes as an ad."""
    return ClassAd(tuple((name, literal(value)) for name, value in attributes.items()))


def number_of(value: object) -> int | float | None:
    """The value of an attribute if it is a number; true and false are none."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class HostClass:
    """Hosts of a CE whose attributes are equal."""

    count: int
    attributes: Mapping[str, Value]
    """In GLUE names, such as GlueHostBenchmarkSI00, or in names of the site."""
    hosts: tuple[str, ...] = ()
    """Their names in the batch system; empty: not known."""


@dataclass(frozen=True, slots=True)
class CeInformation:
    """The facts about one CE at the instant `updated`, in epoch seconds."""

    attributes: Mapping[str, Value] = field(default_factory=dict)
    """The attributes of the CE and its site. An attribute that is absent is unknown."""
    host_classes: tuple[HostClass, ...] = ()
    homogeneous: bool = False
    """All hosts are alike, so GlueHost* in `attributes` hold for each of them."""
    updated: float = 0.0
    expiry: float = DEFAULT_EXPIRY
    """Seconds after `updated`. Then the facts are unknown, and nothing counts as free."""

    def is_current(self, now: float) -> bool:
        return now < self.updated + self.expiry

    @property
    def is_closed(self) -> bool:
        """Whether its state is known, and is not Production."""
        status = self.attributes.get("GlueCEStateStatus")
        return isinstance(status, str) and status.lower() != "production"
