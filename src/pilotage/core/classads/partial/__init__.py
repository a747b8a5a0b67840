"""Partial evaluation of ClassAd expressions against an ad that is known in part.

    residual           the condition that is left on unknown attributes
    can_be_true        whether some values make it true
    host_conditions    the residual as alternatives of conditions on single attributes
    Kind               the declared type of an unknown attribute

docs/reference/classads.md has the rules.
"""

from pilotage.core.classads.partial.host_conditions import HostCondition, host_conditions
from pilotage.core.classads.partial.reduction import can_be_true, residual
from pilotage.core.classads.partial.unknowns import LARGEST_QUANTITY, Kind

__all__ = ["LARGEST_QUANTITY", "HostCondition", "Kind", "can_be_true", "host_conditions", "residual"]
