"""The state of one pass that resolves names: ads, unknown attributes, parts left as they are, steps."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, TypeAlias

from pilotage.core.classads.evaluate import Run
from pilotage.core.classads.partial.outcomes import ANYTHING, outcome_of
from pilotage.core.classads.tree import (
    Attribute,
    Call,
    Chain,
    ClassAd,
    Conditional,
    Expression,
    ListOf,
    Literal,
    Logic,
    Subscript,
    Unary,
)
from pilotage.core.classads.values import Record

Partial: TypeAlias = Any
"""A value of the evaluator, or an `Expression`: the tree that remains."""

TREES: Final = frozenset(
    {Literal, Attribute, Subscript, Unary, Logic, Chain, Conditional, Call, ListOf, ClassAd}
)
_EMPTY: Final = ClassAd()
_OTHER: Final = Attribute("other")
_TARGET_NAMES: Final = frozenset({"other", "target"})


class Irreducible(Exception):
    """A part cannot be written down outside of its ad. Never leaves this package."""


class Folding(Run):
    """One partial evaluation: its ads, the unknown attributes met, and the steps left.

    `unknown` maps the lower-case name of each unknown attribute to the node that stands for it. `repeated` has the
    names of unknown attributes that the tree has more than once.
    `kept` has nodes that stay as they are written, by id, each with the outcomes that it can have.
    """

    __slots__ = (
        "borrowed",
        "declared",
        "is_complete",
        "kept",
        "mine",
        "prefix",
        "repeated",
        "target_names",
        "theirs",
        "unknown",
    )

    def __init__(
        self,
        my: ClassAd | None,
        target: ClassAd,
        declared: Collection[str],
        steps: int,
        *,
        is_complete: bool = True,
    ) -> None:
        super().__init__(None, None, steps)
        # Whether `my` has all that can be asked of it.
        self.is_complete = is_complete
        self.mine = Record(my if my is not None else _EMPTY)
        self.theirs = Record(target)
        self.mine.other, self.theirs.other = self.theirs, self.mine
        self.declared = declared
        self.unknown: dict[str, Attribute] = {}
        self.repeated: set[str] = set()
        self.kept: dict[int, tuple[Expression, int]] = {}
        # Names that the target lacks and takes from `my`; a full ad must not define them.
        self.borrowed: set[str] = set()
        defined = self.mine.ad.index
        self.prefix: Attribute | None = _OTHER
        self.target_names = _TARGET_NAMES
        if "other" in defined or "target" in defined:
            self.target_names = _TARGET_NAMES - defined.keys()
            self.prefix = Attribute("target") if "target" in self.target_names else None
            if "other" in self.target_names:
                self.prefix = _OTHER

    @property
    def is_ambiguous(self) -> bool:
        """Whether a name was taken from `my` by the target that is an unknown attribute elsewhere."""
        return not self.borrowed.isdisjoint(self.unknown)

    def again(self) -> Folding:
        """A second run that takes every name found unknown as one of the target."""
        declared = {*self.declared, *self.unknown}
        return Folding(self.mine.ad, self.theirs.ad, declared, self.steps, is_complete=self.is_complete)

    def unknown_attribute(self, name: str, key: str, source: Attribute | None = None) -> Attribute:
        """The one node that stands for an unknown attribute of the target; `source` can be it."""
        node = self.unknown.get(key)
        if node is not None:
            self.repeated.add(key)
            return node
        if source is None:
            if self.prefix is None:
                raise Irreducible
            source = Attribute(name, self.prefix)
        self.unknown[key] = source
        return source

    def keep(self, node: Expression, scope: Record, outcomes: int = ANYTHING) -> Expression:
        """A node left as it is written, which is possible only in `my` itself, outside of all attributes.

        A name becomes one that no later evaluation takes for an unknown attribute.
        """
        if scope is not self.mine or self.active:
            raise Irreducible
        if type(node) is Attribute:
            node = self._told_apart(node)
        self.kept[id(node)] = node, outcomes
        return node

    def _told_apart(self, node: Attribute) -> Expression:
        base = node.base
        is_of_target = type(base) is Attribute and base.base is None and base.key in self.target_names
        if node.base is None and not node.absolute:
            if node.key in self.mine.ad.index:
                return node if "my" in self.mine.ad.index else Attribute(node.name, Attribute("my"))
            is_of_target = node.key in self.theirs.ad.index
        if is_of_target and self.prefix is not None:
            return Subscript(self.prefix, Literal(node.name))
        return node

    def tree(self, value: Partial, node: Expression, scope: Record) -> Expression:
        """A partial value as a tree; `node` is its source."""
        if type(value) in TREES:
            return value  # type: ignore[no-any-return]
        if type(node) is Literal:
            return node
        try:
            return written(value)
        except Irreducible:
            return self.keep(node, scope, outcome_of(value))


def written(value: Any) -> Expression:
    if isinstance(value, tuple):
        return ListOf(tuple([written(item) if type(item) not in TREES else item for item in value]))
    if isinstance(value, Record):
        if all(type(member) is Literal for member in value.ad.index.values()):
            return value.ad
        raise Irreducible
    return Literal(value)
