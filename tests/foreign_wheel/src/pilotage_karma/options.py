"""The options of CEs of the type karma. The policy is read without the adapter."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pilotage.core.policy.batch_options import BatchOptions
from pilotage.core.setting import Setting


class KarmaOptions(BatchOptions, frozen=True):
    """The table `ces.NAME.karma`."""

    meaning: ClassVar[str] = "processes with a lane"

    lane: Annotated[str, Setting("the lane of its pilots")] = "slow"
