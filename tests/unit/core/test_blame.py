"""Whose fault a failure of pilots looks like."""

from __future__ import annotations

import pytest

from pilotage.core.pilots.blame import Blame, blame


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ("pilotage: no Python 3.9 or newer on n1", Blame.SITE),
        ("its batch job has ended without a word: NODE_FAIL", Blame.SITE),
        ("sbatch is not installed here", Blame.SITE),
        ("invalid partition specified: nosuch", Blame.POLICY),
        ("Invalid account or account/partition combination specified", Blame.POLICY),
        ("Requested node configuration is not available", Blame.POLICY),
        ("PENDING: PartitionTimeLimit", Blame.POLICY),
        ("AUTHENTICATE:1003:Failed to authenticate with any method", Blame.POLICY),
        ("condor_status: Error: Can't find address for schedd nosuch@", Blame.POLICY),
        ("Parse error in expression:; Requirements = ((Memory >) && ...", Blame.POLICY),
        ("/run/token cannot be read: No such file or directory", Blame.POLICY),
        ("its batch job has ended without a word: OUT_OF_MEMORY", Blame.POLICY),
        ("its batch job has ended without a word: PREEMPTED", Blame.TRANSIENT),
        ("Unable to contact slurm controller (connect failure)", Blame.TRANSIENT),
        ("AssocMaxSubmitJobLimit", Blame.TRANSIENT),
        ("Traceback (most recent call last):\n  File ...", Blame.PILOTAGE),
        ("its batch job has ended without a word: FAILED, NonZeroExitCode", Blame.UNKNOWN),
        ("", Blame.UNKNOWN),
    ],
)
def test_blame_finds_the_culprit(text: str, culprit: Blame) -> None:
    assert blame(text) is culprit


def test_the_first_text_that_says_something_counts() -> None:
    assert blame("", "NODE_FAIL") is Blame.SITE
    assert blame("no Python 3.9 or newer", "TIMEOUT") is Blame.SITE
    assert blame("nothing known", "OUT_OF_MEMORY", had_jobs=True) is Blame.USER
