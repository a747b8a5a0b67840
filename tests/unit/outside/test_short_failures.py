"""Failures of commands as people read them: short, of one line, and told once while they are the same."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pilotage.core.errors import Unreachable
from pilotage.outside.batch.command_client import CommandClient, UnreadableOutput
from pilotage.outside.batch.runner import CommandResult
from pilotage.outside.batch.slurm.output import classify_failure, read_listing
from pilotage.outside.batch.submission import (
    MOST_CHARACTERS,
    SubmissionFailed,
    SubmissionRefusal,
    is_same_failure,
)

LISTING = "".join(f"=|{number}|0|RUNNING|n1|pilotage-{number}|None\n" for number in range(200))


class Failing:
    """Every command ends so."""

    is_remote = False

    def __init__(self, status: int | None, output: str = "", errors: str = "") -> None:
        self.result = CommandResult(status, output, errors)

    def run(self, command: Sequence[str], *, text: str = "", timeout: float = 60.0) -> CommandResult:
        return self.result

    def close(self) -> None:
        """Nothing runs."""


def failure(result: Failing) -> str:
    client = CommandClient(result, "Slurm", "Slurm's controller", "", 60.0)
    with pytest.raises(Unreachable) as raised:
        client.check_output(["squeue"])
    return str(raised.value)


def test_a_listing_is_no_text_of_an_error() -> None:
    assert failure(Failing(1, LISTING)) == "squeue ended with status 1 and said nothing"
    assert failure(Failing(-9, LISTING)) == "squeue was killed by signal 9"
    assert failure(Failing(1, f"{LISTING}error: no answer\n")) == "squeue: error: no answer"


def test_every_text_of_a_failure_is_short() -> None:
    assert len(failure(Failing(1, errors=LISTING))) <= MOST_CHARACTERS
    assert len(SubmissionFailed(SubmissionRefusal.REFUSED, LISTING).reason) <= MOST_CHARACTERS
    assert len(str(UnreadableOutput(LISTING))) <= MOST_CHARACTERS


def test_a_failure_that_differs_in_numbers_and_quotes_is_the_same() -> None:
    texts = []
    for begin in ("slurm_load_jobs error 7", "another text"):
        with pytest.raises(UnreadableOutput) as raised:
            list(read_listing(f"{begin}\n"))
        texts.append(str(raised.value))
    assert texts[0] != texts[1]
    assert is_same_failure(*texts)
    assert is_same_failure("squeue: error: no answer after 5 s", "squeue: error: no answer after 12 s")
    assert not is_same_failure("squeue: no answer", "scontrol: no answer")
    assert not is_same_failure("squeue: no answer", "")


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (None, "sbatch did not answer in time"),
        (-9, "sbatch was killed by signal 9"),
        (3, "sbatch ended with status 3 and said nothing"),
    ],
)
def test_a_submission_without_a_word_tells_how_it_ended(status: int | None, text: str) -> None:
    assert classify_failure(status, "") == (SubmissionRefusal.IN_DOUBT, text)
