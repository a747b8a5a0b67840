"""Options of sbatch for mail, as fields of the description."""

from __future__ import annotations

from typing import Any

import pytest

from pilotage.cli.slurm.batch_job import make_batch_job
from pilotage.cli.slurm.partitions import Partitions
from pilotage.cli.slurm.script import BatchScript
from pilotage.core.errors import InvalidInput
from pilotage.wire.sites import PartitionSummary

POOL = Partitions([PartitionSummary("all", True, [], ["*"], "up", 0.0)])


def described(**values: str) -> tuple[dict[str, Any], list[str]]:
    script = BatchScript(b"#!/bin/sh\n", "job.sh", "job.sh")
    given = {name.replace("_", "-"): value for name, value in values.items()}
    job = make_batch_job(given, script, [], parent=str, namesakes=lambda name: [], partitions=POOL)
    return {name: value for name, value in job.description.items() if name.startswith("mail")}, job.notes


@pytest.mark.parametrize(
    ("word", "events"),
    [("END", ["end"]), ("fail,end", ["fail", "end"]), ("ALL", ["end", "fail"]), ("NONE", None)],
)
def test_events_of_slurm(word: str, events: list[str] | None) -> None:
    fields, notes = described(mail_type=word)
    assert fields == ({} if events is None else {"mail_type": events})
    assert notes == []


@pytest.mark.parametrize("word", ["", ",", "nosuch"])
def test_a_word_that_is_no_event_is_refused_as_in_slurm(word: str) -> None:
    with pytest.raises(InvalidInput, match="it names no event"):
        described(mail_type=word)


def test_an_event_without_mail_is_told() -> None:
    fields, notes = described(mail_type="BEGIN,END", mail_user="ada@example.org")
    assert fields == {"mail_type": ["end"], "mail_user": "ada@example.org"}
    assert notes == ["--mail-type BEGIN: no mail is sent for this; END and FAIL are"]


def test_an_account_has_the_address_of_the_policy() -> None:
    assert described(mail_type="END", mail_user="ada")[0] == {"mail_type": ["end"]}
