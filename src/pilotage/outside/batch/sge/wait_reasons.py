"""The class of each reason for which Grid Engine lets a job wait: letters of its state, and the scheduler's words."""

from __future__ import annotations

import re

from pilotage.core.pilots.waits import WaitClass, best

_C = WaitClass

SENTENCES = (
    ("because it exceeds limit", _C.POLICY),
    ("has no permission for", _C.IMPOSSIBLE),
    ("is not contained in its", _C.IMPOSSIBLE),
    ("not in (?:pe|parallel environment) list", _C.IMPOSSIBLE),
    # A value that the host or queue has by its configuration. Loads and consumables change.
    ("because it offers only [hqg]f:", _C.IMPOSSIBLE),
    ("can not run .*because of missing", _C.IMPOSSIBLE),
    ("because it offers only", _C.TRANSIENT),
    ("only offers -?[0-9]+ slots", _C.TRANSIENT),
    ("cannot run in PE", _C.TRANSIENT),
    ("cannot run (?:at|on) host", _C.TRANSIENT),
    ("dropped because it is (?:full|overloaded)", _C.TRANSIENT),
    ("dropped because it is", _C.SITE),
    ("All queues dropped", _C.SITE),
    ("are disabled|is disabled|in error state|unknown state", _C.SITE),
    ("(?:job|user) .*(?:limit|quota)", _C.POLICY),
)
"""Patterns of the scheduler's messages; the first that is found counts."""
_SENTENCES = tuple((re.compile(pattern), wait) for pattern, wait in SENTENCES)


def classify_wait(letters: str, reasons: str) -> WaitClass:
    """The class of a job in a state such as hqw, qw, Eqw. `reasons`: messages, separated by semicolons.

    Each message is about one queue, so the best of them counts.
    """
    if "h" in letters:
        return _C.USER
    if "E" in letters:
        return _C.ERROR
    known = (_classify_sentence(sentence) for sentence in reasons.split("; ") if sentence)
    return best(known) or _C.TRANSIENT


def _classify_sentence(sentence: str) -> WaitClass:
    return next((wait for pattern, wait in _SENTENCES if pattern.search(sentence)), _C.UNKNOWN)
