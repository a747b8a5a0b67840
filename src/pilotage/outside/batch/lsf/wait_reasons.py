"""The class of each reason for which LSF lets a job wait: sentences of PEND_REASON."""

from __future__ import annotations

import re

from pilotage.core.pilots.waits import WaitClass, best

_C = WaitClass

SENTENCES = (
    ("suspended by .*(?:administrator|root)", _C.USER),
    ("suspended (?:by|while|upon)|[Hh]old", _C.USER),
    ("exit value|requeue|pre-exec|Failed to|cannot be (?:started|dispatched)|Unable to", _C.ERROR),
    ("(?:never|not) be satisfied|not (?:qualified|specified by)|does not (?:exist|qualify)", _C.IMPOSSIBLE),
    ("requirements? for .*reserv.* not satisfied", _C.TRANSIENT),
    # A selection may compare the load of hosts, so nobody knows whether it ends.
    ("requirements? (?:for .* )?not satisfied", _C.UNKNOWN),
    ("exceeds? the .*limit of|greater than .*limit", _C.IMPOSSIBLE),
    ("[Ss]tag(?:e|ing)|data (?:requirement|transfer)", _C.STAGING),
    ("[Qq]ueue .*(?:inactivated|closed|inactive)|not accepting|dispatch window|run window", _C.SITE),
    ("[Cc]losed by (?:LSF )?(?:administrator|operator)|LIM .*(?:unavailable|unreachable|locked)", _C.SITE),
    ("[Uu]nreachable|[Uu]navailable|reservation|maintenance|license", _C.SITE),
    ("limit|threshold|quota|not enough .*shares?", _C.POLICY),
    ("waiting for (?:scheduling|dispatch|resources)|New job", _C.TRANSIENT),
    ("[Nn]ot enough|[Ii]nsufficient|slots?|load|busy|[Rr]eserved|priority|backfill|exclusive", _C.TRANSIENT),
    ("dispatch|[Dd]ependency|start time", _C.TRANSIENT),
)
"""Patterns of the sentences; the first that is found counts."""
_SENTENCES = tuple((re.compile(pattern), wait) for pattern, wait in SENTENCES)


def classify_wait(reasons: str) -> WaitClass:
    """The class of a job that waits. Each sentence is about some of the hosts, so the best of them counts."""
    sentences = [sentence.strip() for sentence in reasons.split(";")]
    known = [_classify_sentence(sentence) for sentence in sentences if sentence]
    return best(known) or _C.TRANSIENT


def _classify_sentence(sentence: str) -> WaitClass:
    return next((wait for pattern, wait in _SENTENCES if pattern.search(sentence)), _C.UNKNOWN)
