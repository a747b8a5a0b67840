"""The predicate `fits` asked for many queues at once: each of its conditions once for all queues that are alike to it.

The answer is that of `fit.static_failure` for every queue, since it is asked there; only the number of questions is
smaller. Queues are known by their slot, a number that is never given twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilotage.core.queues.fit import STATIC, Condition, Offer
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.limits import Limit

Slots = NDArray[np.int64]

ANSWERS = 4096
"""Cached answers of conditions."""

ORDER = tuple(STATIC)
SIZES = (Condition.CPU_TIME, Condition.WALL_TIME, Condition.PROCESSORS, Condition.MEMORY, Condition.DISK)
"""Conditions on the sizes, which shrink as an offer is used up."""
OTHERS = tuple(condition for condition in ORDER if condition not in SIZES)
FITS = len(ORDER)
"""In place of the number of a condition: none has failed."""


@dataclass(slots=True)
class _AttributeColumn:
    """Some attributes of every queue; queues that have the same ones share a number."""

    values_of: Callable[[QueueIdentity], Any]
    numbers: Slots = field(default_factory=lambda: np.zeros(256, dtype=np.int64))
    """The number of the attributes of the queue in each slot."""
    known: dict[Any, int] = field(default_factory=dict)
    examples: list[QueueIdentity] = field(default_factory=list)
    """One queue for each number."""

    def add(self, slot: int, identity: QueueIdentity) -> None:
        if slot >= len(self.numbers):
            self.numbers = np.concatenate([self.numbers, np.zeros_like(self.numbers)])
        values = self.values_of(identity)
        number = self.known.get(values)
        if number is None:
            number = self.known[values] = len(self.examples)
            self.examples.append(identity)
        self.numbers[slot] = number


@dataclass(slots=True)
class _CachedAnswer:
    """The cached answers of one question for each number of its column."""

    column: _AttributeColumn
    ask: Callable[[QueueIdentity], bool]
    said: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    def of(self, slots: Slots) -> NDArray[np.bool_]:
        examples, asked = self.column.examples, len(self.said)
        if asked < len(examples):
            more = np.fromiter(map(self.ask, examples[asked:]), np.bool_, len(examples) - asked)
            self.said = np.concatenate([self.said, more])
        return self.said[self.column.numbers[slots]]


class VectorisedMatching:
    """All queues of an index, by slot."""

    def __init__(self) -> None:
        self._columns: dict[tuple[str, ...], _AttributeColumn] = {}
        self._identities: list[QueueIdentity] = []
        self._answers: dict[tuple[Any, ...], _CachedAnswer] = {}
        for rule in STATIC.values():
            self._column(rule.of_queue)

    def add(self, identity: QueueIdentity) -> int:
        """The slot of a new queue."""
        slot = len(self._identities)
        self._identities.append(identity)
        for column in self._columns.values():
            column.add(slot, identity)
        return slot

    def __len__(self) -> int:
        return len(self._identities)

    def passing(self, offer: Offer, slots: Slots, conditions: Iterable[Condition]) -> Slots:
        """The slots that meet all of `conditions` for `offer`."""
        for condition in conditions:
            if len(slots):
                slots = slots[self._condition(condition, offer).of(slots)]
        return slots

    def failures(self, offer: Offer, slots: Slots) -> NDArray[np.int64]:
        """The place in `ORDER` of the first condition at which each slot falls for `offer`, or `FITS`."""
        failed = np.full(len(slots), FITS, dtype=np.int64)
        still = np.arange(len(slots))
        for place, condition in enumerate(ORDER):
            met = self._condition(condition, offer).of(slots[still])
            failed[still[~met]] = place
            still = still[met]
        return failed

    def limited_by(self, limits: Iterable[Limit], slots: Slots) -> NDArray[np.bool_]:
        """Whether any of `limits` concerns the queue of each slot."""
        limited = np.zeros(len(slots), dtype=np.bool_)
        for limit in limits:
            question = (limit.attribute, limit.value)
            answer = self._answers.get(question)
            if answer is None:
                answer = self._remember(
                    question, _CachedAnswer(self._column((limit.attribute,)), limit.applies_to)
                )
            limited |= answer.of(slots)
        return limited

    def _condition(self, condition: Condition, offer: Offer) -> _CachedAnswer:
        rule = STATIC[condition]
        question = (condition, *(getattr(offer, name) for name in rule.of_offer))
        answer = self._answers.get(question)
        if answer is None:
            met = rule.met
            answer = _CachedAnswer(self._column(rule.of_queue), lambda queue: met(queue, offer))
            self._remember(question, answer)
        return answer

    def _remember(self, question: tuple[Any, ...], answer: _CachedAnswer) -> _CachedAnswer:
        if len(self._answers) >= ANSWERS:
            self._answers.clear()
        self._answers[question] = answer
        return answer

    def _column(self, attributes: tuple[str, ...]) -> _AttributeColumn:
        column = self._columns.get(attributes)
        if column is None:
            values_of = attrgetter(*attributes) if attributes else lambda _: None
            column = self._columns[attributes] = _AttributeColumn(values_of)
            for slot, identity in enumerate(self._identities):
                column.add(slot, identity)
        return column
