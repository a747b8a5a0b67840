"""Why HTCondor holds a batch job: each HoldReasonCode in plain words, with its class."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pilotage.core.pilots.waits import WaitClass

_C = WaitClass

CODES: Mapping[int, tuple[str, WaitClass]] = {
    # Somebody, or something that passes.
    1: ("held with condor_hold", _C.USER),
    15: ("submitted on hold", _C.USER),
    16: ("its files are on their way to the schedd", _C.STAGING),
    # Rules of the site.
    26: ("a rule of the schedd holds it (SYSTEM_PERIODIC_HOLD)", _C.POLICY),
    27: ("a rule of the schedd is undefined for it (SYSTEM_PERIODIC_HOLD)", _C.SITE),
    21: ("a rule of the machine holds it", _C.ERROR),
    # As it was submitted, it can never run.
    17: ("its universe does not fit the shadow", _C.IMPOSSIBLE),
    24: ("the schedd has no shadow for it", _C.IMPOSSIBLE),
    25: ("its cron settings are wrong", _C.IMPOSSIBLE),
    32: ("its files are larger than the schedd allows (MAX_TRANSFER_INPUT_MB)", _C.IMPOSSIBLE),
    35: ("its container image is wrong", _C.IMPOSSIBLE),
    # HTCondor tried, failed, and does not try again.
    0: ("held without a reason", _C.ERROR),
    2: ("the grid gateway refused it", _C.ERROR),
    3: ("a rule of the batch job itself holds it", _C.ERROR),
    4: ("its credentials are not valid", _C.ERROR),
    5: ("a rule of the batch job itself is undefined", _C.ERROR),
    6: ("its program could not be started on the machine", _C.ERROR),
    7: ("its output file could not be opened", _C.ERROR),
    8: ("its input file could not be opened", _C.ERROR),
    9: ("its output stream could not be opened", _C.ERROR),
    10: ("its input stream could not be opened", _C.ERROR),
    11: ("the transfer of its files broke off", _C.ERROR),
    12: ("its output could not be transferred back", _C.ERROR),
    13: ("its script could not be transferred to the machine", _C.ERROR),
    14: ("its initial folder could not be used", _C.ERROR),
    18: ("the transfer of its files broke off", _C.ERROR),
    19: ("the prepare hook of the machine failed", _C.ERROR),
    20: ("it missed its start time", _C.ERROR),
    22: ("its event log could not be written", _C.ERROR),
    23: ("the schedd could not use its account", _C.ERROR),
    28: ("its folder could not be given to its account", _C.ERROR),
    29: ("its folder could not be given to its account", _C.ERROR),
    30: ("its folder could not be given back to HTCondor", _C.ERROR),
    31: ("its folder could not be given back to HTCondor", _C.ERROR),
    33: ("its output is larger than the schedd allows (MAX_TRANSFER_OUTPUT_MB)", _C.ERROR),
    34: ("it used more memory or disk than it asked for", _C.ERROR),
    36: ("its checkpoint failed", _C.ERROR),
    37: ("the cloud refused it", _C.ERROR),
    38: ("the cloud gateway failed", _C.ERROR),
    39: ("the cloud gateway is not set up", _C.ERROR),
    40: ("the cloud could not be reached", _C.ERROR),
    41: ("the cloud failed", _C.ERROR),
    42: ("its machine in the cloud may be lost", _C.ERROR),
    43: ("a program before it failed", _C.ERROR),
    44: ("a program after it failed", _C.ERROR),
    45: ("the machine cannot run containers", _C.ERROR),
    46: ("it lasted longer than allowed", _C.ERROR),
    47: ("it ran longer than allowed", _C.ERROR),
    48: ("the prepare hook of the schedd failed", _C.ERROR),
}
"""Meaning and class, by code. A code that is not here belongs to a site or to a later version."""

_WITH_ERRNO = frozenset({6, 7, 8, 9, 10, 12, 13, 14})
"""Codes whose subcode is the number of a system error."""


def classify_hold(code: int) -> WaitClass:
    """The class of a hold."""
    return CODES[code][1] if code in CODES else WaitClass.UNKNOWN


def describe_hold(code: int, subcode: int, reason: str) -> str:
    """A hold in plain words, with HTCondor's own text."""
    words = CODES[code][0] if code in CODES else f"held with code {code}"
    if code in _WITH_ERRNO and 0 < subcode < 256 and os.strerror(subcode) not in reason:
        words += f" ({os.strerror(subcode)})"
    elif subcode and code not in CODES:
        words += f".{subcode}"
    return f"{words}: {reason}" if reason else words
