"""The seam to batch systems: one protocol for all adapters, and the facts that cross it.

A *submission* is a number of equal pilots under one stamp. The stamp and the index within the submission identify a
batch job. The batch id is only an answer of the batch system, which may give the same id again after a crash. An
adapter keeps no state of its own: it reads everything back from the batch system.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple, Protocol

from pilotage.core.forwarding.rules import Rule
from pilotage.core.glue.information import CeInformation
from pilotage.core.policy.new_ce import NodeSize
from pilotage.outside.batch.submission import BatchListing, ListedTask


class Shape(NamedTuple):
    """The resources that every batch job of one submission asks for."""

    processors: int
    memory: int = 0
    """MB; 0: the batch system's default."""
    wall: float = 0.0
    """Seconds; 0: the batch system's default."""


@dataclass(frozen=True, slots=True)
class BatchSubmission:
    """Equal pilots to submit under one stamp."""

    stamp: str
    count: int
    shape: Shape
    script: str = field(repr=False)
    """For /bin/sh. It holds a secret: an adapter feeds it over standard input, never as an argument."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Facts for the administrators of the site, such as the owner. Everybody may read them."""
    _: KW_ONLY
    flags: tuple[str, ...] = ()
    """Native arguments that restrict the nodes, made by core/forwarding from the requirements of the queue."""
    neighbours: tuple[str, ...] = ()
    """Batch ids of the CE's other pilots, for systems that do not place batch jobs by themselves."""


class Receipt(NamedTuple):
    """The batch system has accepted a submission."""

    array: str
    """The batch id of the whole submission; where batch jobs have ids of their own only, the first of them."""
    batch_ids: tuple[str, ...]
    """The batch id of each pilot, by index."""


@dataclass(frozen=True, slots=True)
class BatchPartition:
    """A part of a batch system with limits of its own."""

    name: str
    up: bool
    """False: it starts no jobs."""
    wall: float | None
    """The longest time of a batch job, in seconds; None: no limit."""
    kinds: tuple[NodeSize, ...]
    """Not empty. Several may have the same size."""
    features: frozenset[str] = frozenset()
    gres: frozenset[str] = frozenset()
    default: bool = False


@dataclass(frozen=True, slots=True)
class BatchAccount:
    """One way in which the user of the adapter may charge an account."""

    name: str
    partition: str = ""
    """The only partition that it is for; empty: any."""
    qos: tuple[str, ...] = ()
    """The QOS that it may use; empty: not limited."""
    default: bool = False
    """It is charged if a submission names no account."""


class BatchAdapter(Protocol):
    """A batch system. Every call may block for minutes.

    A call raises `Unreachable` if the batch system gives no clear answer; its effect is then unknown. Listings never
    raise: their `failure` says why they are not complete. To release or cancel twice does no harm.
    """

    holds: bool
    """Whether submissions are held until their release. Otherwise the submission also releases them."""
    keeps_ended: bool
    """Whether ended batch jobs stay until `cancel_tasks` removes them, which the director asks for when their ends
    are stored.
    """
    index_variable: str
    """The environment variable in which a pilot finds its index within its submission."""
    pilot_options: Mapping[str, str]
    """Options that tell a pilot of its batch job, each with the text of the shell that gives the value on the node.

    They are --batch-id, as listings have it; --batch-host, the host as `information` names it; --batch-start and
    --batch-end in seconds since 1970, by one clock; --restarts, how often the batch job was started again; --cut-off,
    whether it stays when its server is gone. All may be absent.
    """
    place: str
    """The part of a batch id that is known before the submission; "" for none."""

    def submit(self, submission: BatchSubmission) -> Receipt:
        """Submit equal pilots, held if the batch system holds. `SubmissionFailed` tells whether they are in doubt.

        A submission of which only some pilots were accepted is in doubt: listings tell which.
        """

    def release(self, stamps: Sequence[str]) -> None:
        """Let all pilots of these submissions start.

        `SubmissionFailed`: the batch system will never start them; cancel them.
        """

    def cancel(self, stamps: Sequence[str], *, waiting_only: bool = False) -> None:
        """Cancel all pilots of these submissions, or only the waiting ones."""

    def cancel_tasks(self, batch_ids: Sequence[str], epoch: str) -> None:
        """Cancel single pilots or arrays by ids of a listing with this `epoch`; unknown ids are left out.

        Ended ones are removed where the batch system keeps them.

        `Unreachable` if the batch system has another epoch now: its ids may belong to other jobs.
        """

    def list_pilots(self, stamps: Collection[str] | None = None) -> BatchListing:
        """List the batch jobs with these stamps. None: all of the account, also jobs that are no pilots."""

    def status(self, batch_ids: Mapping[str, str]) -> BatchListing:
        """List pilots, by batch ids where that is cheaper. `batch_ids`: from pilots' stamps to ids, "" where unknown.

        A pilot's stamp is STAMP/INDEX. The listing may have further pilots.
        """

    def list_accounted(self, stamps: Collection[str], since: float) -> list[ListedTask]:
        """The batch jobs of these stamps that have ended or run, as the batch system's accounting tells it.

        `since`: seconds that the oldest submission is old. It may know jobs that listings have no more. Empty where
        there is no accounting. `Unreachable` if it does not answer.
        """

    def properties(
        self, stamps: Collection[str] | None = None
    ) -> dict[tuple[str, int | None], dict[str, str]]:
        """The properties of the batch jobs with these stamps, by stamp and index, read in one listing."""

    def describe(self) -> list[BatchPartition]:
        """The parts of the batch system, with their limits. `Unreachable` if it does not answer."""

    def information(self) -> CeInformation:
        """The CE as the batch system shows it now: its attributes in GLUE names, and classes of equal hosts.

        The caller sets the instant and the expiry. An attribute that the batch system does not tell is absent.
        `Unreachable` if the batch system does not answer. The number of questions does not grow with the hosts.
        """

    def accounts(self) -> list[BatchAccount]:
        """The accounts that the user may charge. Empty: the batch system has none, or does not enforce them."""

    def check(self, shape: Shape) -> str:
        """Why such a pilot would be refused; "" if it would be accepted. Nothing is submitted."""

    def check_terms(self, rules: Mapping[str, Rule], hosts: Collection[str]) -> list[str]:
        """Why rules of the forward table, or names of hosts of the policy, do not fit this batch system.

        `Unreachable` if it does not answer.
        """

    def output(self, stamp: str, index: int, most: int) -> str:
        """The last `most` characters that a pilot has printed; "" if nothing of it can be read."""

    def close(self) -> None:
        """End the calls that are under way, and refuse further ones. A submission under way is in doubt."""


def split_stamp(stamp: str) -> tuple[str, int | None]:
    """A pilot's stamp as (stamp of the submission, index). No index: it is the only pilot of its submission."""
    submission, slash, index = stamp.rpartition("/")
    return (submission, int(index)) if slash and index.isdecimal() else (stamp, None)


def submissions_of(stamps: Iterable[str]) -> list[str]:
    """The stamps of the submissions of these pilots, each once."""
    return list(dict.fromkeys(split_stamp(stamp)[0] for stamp in stamps))


def unknown_hosts(hosts: Collection[str], known: Collection[str]) -> list[str]:
    """A sentence for each host of the policy that the batch system does not have."""
    names = {host.lower() for host in known}
    return [
        f"hosts: the batch system has no host {host}"
        for host in hosts
        if host.rpartition("@")[2].lower() not in names
    ]
