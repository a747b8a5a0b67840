"""The table of all kinds of transactions whose statements are interleaved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.interleavings import duties, outside
from tests.interleavings.kinds_of_people import OF_ADMINISTRATORS, OF_JOBS, Kind
from tests.interleavings.kinds_of_production import OF_DATA_SETS, OF_REQUESTS
from tests.interleavings.kinds_of_workers import OF_AGENTS, OF_PILOTS
from tests.interleavings.server import Work


def _duty(name: str) -> Kind:
    return lambda world: duties.cycle(name)


OF_DUTIES: Final[Mapping[str, Kind]] = {
    **{f"duty {name}": _duty(name) for name in duties.ALL},
    "a CE gets pilots": lambda world: Work("", outside.submit_pilots),
    "a CE has ended pilots": lambda world: Work("", outside.list_ends),
}
KINDS: Final[Mapping[str, Kind]] = {
    **OF_JOBS,
    **OF_ADMINISTRATORS,
    **OF_REQUESTS,
    **OF_DATA_SETS,
    **OF_AGENTS,
    **OF_PILOTS,
    **OF_DUTIES,
}
