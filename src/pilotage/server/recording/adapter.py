"""The calls to a batch system, over the tape."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from pilotage.core.forwarding.rules import Rule
from pilotage.core.glue.information import CeInformation
from pilotage.outside.batch.adapter import (
    BatchAccount,
    BatchAdapter,
    BatchPartition,
    BatchSubmission,
    Receipt,
    Shape,
)
from pilotage.outside.batch.submission import BatchListing, ListedTask
from pilotage.server.recording.tape import Tape

Value = TypeVar("Value")
Properties = list[tuple[str, int | None, dict[str, str]]]


class _AdapterKind(NamedTuple):
    holds: bool
    index_variable: str
    pilot_options: dict[str, str]
    place: str
    keeps_ended: bool = False


class TapedAdapter:
    """Implements `BatchAdapter`: it calls another adapter, or plays the recorded results."""

    def __init__(self, tape: Tape, name: str, make: Callable[[], BatchAdapter]) -> None:
        """`name`: that of its CE. `make`: makes the other adapter."""
        self._tape = tape
        self._name = name
        self._make = make
        kind = self._ask("kind", _AdapterKind, self._kind)
        self.holds, self.index_variable = kind.holds, kind.index_variable
        self.pilot_options: Mapping[str, str] = kind.pilot_options
        self.place, self.keeps_ended = kind.place, kind.keeps_ended

    @cached_property
    def _batch(self) -> BatchAdapter:
        return self._make()

    def _kind(self) -> _AdapterKind:
        batch = self._batch
        options = dict(batch.pilot_options)
        return _AdapterKind(batch.holds, batch.index_variable, options, batch.place, batch.keeps_ended)

    def _ask(self, call: str, kind: Any, make: Callable[[], Value]) -> Value:
        return self._tape.ask(f"{self._name}: {call}", kind, make)

    def submit(self, submission: BatchSubmission) -> Receipt:
        return self._ask("submit", Receipt, lambda: self._batch.submit(submission))

    def release(self, stamps: Sequence[str]) -> None:
        self._ask("release", None, lambda: self._batch.release(stamps))

    def cancel(self, stamps: Sequence[str], *, waiting_only: bool = False) -> None:
        self._ask("cancel", None, lambda: self._batch.cancel(stamps, waiting_only=waiting_only))

    def cancel_tasks(self, batch_ids: Sequence[str], epoch: str) -> None:
        self._ask("cancel tasks", None, lambda: self._batch.cancel_tasks(batch_ids, epoch))

    def list_pilots(self, stamps: Collection[str] | None = None) -> BatchListing:
        return self._ask("list", BatchListing, lambda: self._batch.list_pilots(stamps))

    def status(self, batch_ids: Mapping[str, str]) -> BatchListing:
        return self._ask("status", BatchListing, lambda: self._batch.status(batch_ids))

    def list_accounted(self, stamps: Collection[str], since: float) -> list[ListedTask]:
        return self._ask("accounting", list[ListedTask], lambda: self._batch.list_accounted(stamps, since))

    def properties(
        self, stamps: Collection[str] | None = None
    ) -> dict[tuple[str, int | None], dict[str, str]]:
        def listed() -> Properties:
            return [(*pilot, given) for pilot, given in self._batch.properties(stamps).items()]

        rows = self._ask("properties", Properties, listed)
        return {(stamp, index): given for stamp, index, given in rows}

    def describe(self) -> list[BatchPartition]:
        return self._ask("describe", list[BatchPartition], lambda: self._batch.describe())

    def information(self) -> CeInformation:
        return self._ask("information", CeInformation, lambda: self._batch.information())

    def accounts(self) -> list[BatchAccount]:
        return self._ask("accounts", list[BatchAccount], lambda: self._batch.accounts())

    def check(self, shape: Shape) -> str:
        return self._ask("check", str, lambda: self._batch.check(shape))

    def check_terms(self, rules: Mapping[str, Rule], hosts: Collection[str]) -> list[str]:
        return self._ask("check terms", list[str], lambda: self._batch.check_terms(rules, hosts))

    def output(self, stamp: str, index: int, most: int) -> str:
        return self._ask("output", str, lambda: self._batch.output(stamp, index, most))

    def close(self) -> None:
        if self._tape.live:
            self._batch.close()


class TapedCalls:
    """Implements `OutsideCalls`."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.ask = tape.ask

    def adapter(self, name: str, make: Callable[[], BatchAdapter]) -> BatchAdapter:
        return TapedAdapter(self._tape, name, make)
