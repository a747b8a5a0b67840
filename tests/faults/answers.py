"""What servers have answered, held against the log: nothing was said that did not come, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pilotage.core.policy import parse
from tests.faults.ledger import Ledger
from tests.faults.paper_pilots import Said
from tests.faults.people import Person

TAKEN = ("applied", "retried")
"""Outcomes of tries whose finish was accepted."""


def pilots_heard_the_truth(ledger: Ledger, heard: Iterable[Said]) -> None:
    """Offers, acknowledgements and refusals are those of the log."""
    for said in heard:
        job, epoch = said.job, said.epoch
        assert said.verdict != "unknown", f"{said}, but it is {ledger.jobs.get(job)}"
        moves = [move for move in ledger.moves[job] if move.epoch == epoch]
        ours = ledger.offered_to(job, epoch) == said.pilot
        if said.what == "offer" or said.verdict == "accepted":
            assert ours, f"{said} is not in the log: {moves}"
        if (said.what, said.verdict) == ("finish", "accepted"):
            assert ledger.tries[job, epoch][1] in TAKEN, (said, ledger.tries[job, epoch])
        elif (said.what, said.verdict) == ("confirm", "accepted"):
            assert (job, epoch) in ledger.tries, f"{said}, and nothing is known of it"
        elif said.verdict == "superseded" and said.reason.startswith("the job is "):
            state = said.reason.removeprefix("the job is ")
            assert state in {move.new for move in moves}, f"{said}, but there was only {moves}"
        elif said.verdict == "superseded":
            given = int(said.reason.removeprefix("epoch ").partition(" ")[0])
            assert given != epoch, said
            assert ledger.offered_to(job, given) is not None, f"{said}, but that was given to nobody"


def people_heard_the_truth(ledger: Ledger, people: Iterable[Person]) -> None:
    """What was accepted is there, what was done stands in the log."""
    sizes = Counter(job.submission for job in ledger.jobs.values())
    for person in people:
        assert person.jobs <= ledger.jobs.keys(), person.jobs - ledger.jobs.keys()
        for submission, count in person.submissions.items():
            assert sizes[submission] == count, f"submission {submission}: {sizes[submission]} of {count} jobs"
        acted = Counter(person.acted)
        for (kind, job), times in acted.items():
            logged = [move.kind for move in ledger.moves[job]].count(kind)
            assert logged >= times, (
                f"job {job} was {kind} {times} times, as one was told, and {logged} as the log"
            )
        for version, text in person.applied.items():
            assert ledger.policies[version] == parse(text), f"version {version} is not what was applied"
