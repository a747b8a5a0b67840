"""The policy: users, groups, shares, sites and rules in one TOML document, which is applied or refused as a whole.

`parse` reads the document and refuses unknown keys with their line and the nearest known name. `KEYS`
explains each key.
"""

from pilotage.core.policy.default_policy import annotated, initial
from pilotage.core.policy.differences import PolicyDifference, changes
from pilotage.core.policy.model import (
    ADMINISTRATOR,
    GENERIC_PILOT,
    JOB_ADMINISTRATOR,
    JOB_SHARING,
    NORMAL_USER,
    PROPERTIES,
    Accounting,
    Ce,
    Correction,
    Group,
    Jobs,
    LimitEntry,
    Matching,
    OutsideCatalogue,
    Policy,
    Site,
    User,
)
from pilotage.core.policy.parser import KEYS, known_properties, parse, warnings
from pilotage.core.policy.retention import Retention

__all__ = [
    "ADMINISTRATOR",
    "GENERIC_PILOT",
    "JOB_ADMINISTRATOR",
    "JOB_SHARING",
    "KEYS",
    "NORMAL_USER",
    "PROPERTIES",
    "Accounting",
    "Ce",
    "Correction",
    "Group",
    "Jobs",
    "LimitEntry",
    "Matching",
    "OutsideCatalogue",
    "Policy",
    "PolicyDifference",
    "Retention",
    "Site",
    "User",
    "annotated",
    "changes",
    "initial",
    "known_properties",
    "parse",
    "warnings",
]
