"""The class of each reason for which PBS lets a job wait: the comment of its scheduler, or its hold."""

from __future__ import annotations

import re
from functools import lru_cache

from pilotage.core.pilots.waits import WaitClass

_C = WaitClass

SENTENCES = (
    (
        "[Cc]an [Nn]ever [Rr]un|[Jj]ob exceeds|does not exist|Invalid Job|Not enough total nodes",
        _C.IMPOSSIBLE,
    ),
    ("can't fit in the largest placement set|requesting .* which is not available", _C.IMPOSSIBLE),
    ("too many failed attempts|PBS Error|cannot be executed|Failed to run|rejected by all", _C.ERROR),
    ("[Ss]tage ?in|staging", _C.STAGING),
    ("[Qq]ueue not started|[Ss]tarted = False|Queue is not|not an execution queue", _C.SITE),
    ("[Dd]edicated|ineligible (?:state|type)|[Pp]rovision|no PBS license|licensed|reservation", _C.SITE),
    ("primetime", _C.SITE),
    ("limit|would exceed|zero shares|threshold|MAXPROC|MAXJOB|MAXNODE", _C.POLICY),
    ("Insufficient amount of (?:queue|server) resource", _C.POLICY),
    ("Insufficient amount|[Nn]ot enough|No available resources|too few free|top job", _C.TRANSIENT),
    ("exclusive node|strict sorted order|[Pp]reempt|Can't preempt|pack placement", _C.TRANSIENT),
    (
        "Nodes? (?:file|not available)|not in queued state|[Ss]cheduling [Ee]rror|has been queued",
        _C.TRANSIENT,
    ),
)
"""Patterns of the scheduler's comments; the first that is found counts."""
_SENTENCES = tuple((re.compile(pattern), wait) for pattern, wait in SENTENCES)

HOLDS = {"u": "held by its user", "o": "held by an operator", "s": "held by PBS", "p": "held: bad password"}
"""The letters of Hold_Types in plain words."""

_PREFIX = re.compile(r"^(?:Not Running|Can Never Run|can never run)\s*:?\s*", re.IGNORECASE)


@lru_cache(maxsize=256)
def classify_comment(comment: str) -> WaitClass:
    """The class of the comment of a job that waits; without one its turn has not come."""
    if not comment:
        return _C.TRANSIENT
    return next((wait for pattern, wait in _SENTENCES if pattern.search(comment)), _C.UNKNOWN)


def plain_comment(comment: str) -> str:
    """The comment without the words that say only that the job waits."""
    never = "can never run: " if re.match("can never run", comment, re.IGNORECASE) else ""
    return never + _PREFIX.sub("", " ".join(comment.split()))


def describe_hold(letters: str, comment: str) -> tuple[str, WaitClass]:
    """Reason and class of a held job, of its Hold_Types and comment."""
    words = [HOLDS[letter] for letter in letters if letter in HOLDS] or ["held"]
    is_of_system = "s" in letters or "p" in letters
    if is_of_system and comment:
        words.append(plain_comment(comment))
    return "; ".join(words), _C.ERROR if is_of_system else _C.USER
