"""The table `retention` of the policy: how long records are kept."""

from __future__ import annotations

from typing import Annotated

from pilotage.core.policy.table import PolicyTable
from pilotage.core.setting import SECONDS, Setting

DAYS_365 = 31536000.0


class Retention(PolicyTable, frozen=True):
    hot: Annotated[
        float,
        Setting("seconds after its end for which a job stays in the table of active jobs", *SECONDS),
    ] = 3600.0
    jobs: Annotated[
        float,
        Setting(
            "seconds after its end for which a job, its submission and its description are kept",
            *SECONDS,
        ),
    ] = DAYS_365
    outputs: Annotated[
        float,
        Setting(
            "seconds after a job's end for which its output files, standard output and error are kept",
            *SECONDS,
        ),
    ] = DAYS_365 / 2
    attempts: Annotated[
        float | None,
        Setting(
            "seconds after their end for which attempts are kept; at least accounting.history and retention.jobs;"
            " absent: the longest of these and two years",
            *SECONDS,
        ),
    ] = None
    """None: the longest of two years, `accounting.history` and `jobs`."""
    events: Annotated[
        float,
        Setting(
            "seconds for which events of jobs and pilots, and actions of administrators, are kept", *SECONDS
        ),
    ] = DAYS_365
    pilots: Annotated[
        float,
        Setting(
            "seconds after its end for which a pilot and its log are kept; at least the longest ces.*.wall",
            *SECONDS,
        ),
    ] = 7776000.0
    uploads: Annotated[
        float, Setting("seconds for which an input file without a submission is kept", *SECONDS)
    ] = 2592000.0
    reasons: Annotated[
        float,
        Setting(
            "seconds for which the reasons why queues waited, and waiting jobs and shares over time, are kept",
            *SECONDS,
        ),
    ] = DAYS_365
