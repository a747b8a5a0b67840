"""The table of kinds has every call that writes and every duty, or says why it has not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules
from typing import Final

import pytest

from pilotage.server import duties as duty_modules
from pilotage.server.duties.duty import Duty
from pilotage.server.http.pilot_endpoints import ENDPOINTS
from tests.interleavings import duties
from tests.interleavings.kinds import KINDS
from tests.interleavings.server import handlers
from tests.interleavings.world import World

NO_ROWS = "it changes no row that another transaction decides on"
FILES = "it writes a file, and notes it by one statement"
OUTSIDE = "it asks a system outside, and stores nothing"
FACTS = "one server at a time stores facts of CEs, on which no other transaction decides"
SUMS = "it writes what only itself reads"
CALLS_LEFT_OUT: Final[Mapping[str, str]] = {
    "POST /v1/shutdown": NO_ROWS,
    "POST /v1/catalogues/{catalogue}/test": OUTSIDE,
    "POST /v1/datasets/follow": OUTSIDE,
    "POST /v1/ces/probe": OUTSIDE,
    "POST /v1/ces/check": OUTSIDE,
    "POST /v1/ces/record": OUTSIDE,
    "POST /v1/issuers/{issuer}/test": OUTSIDE,
    "POST /v1/tokens/exchange": OUTSIDE,
    "POST /v1/storage/{storage}/test": OUTSIDE,
    "POST /v1/storage/{storage}/unclaimed/remove": "an attempt that was refused stays refused, in whatever order",
    "POST /v1/outputs": NO_ROWS,
    "POST /v1/matchmaking": NO_ROWS,
    "POST /v1/requests/check": NO_ROWS,
    "POST /v1/submissions/check": NO_ROWS,
    "POST /v1/submissions/open/check": NO_ROWS,
    "POST /v1/tokens/refresh": NO_ROWS,
    "POST /v1/tokens/home": NO_ROWS,
    "POST /v1/web/codes": NO_ROWS,
    "POST /v1/uploads": FILES,
    "PUT /v1/uploads": FILES,
    "PUT /v1/uploads/{digest}": FILES,
    "POST /v1/uploads/{digest}/address": FILES,
    "POST /v1/uploads/{digest}/object": FILES,
    "PUT /v1/pilot/jobs/{job}/{epoch}/outputs/{name:path}": FILES,
    "POST /v1/pilot/jobs/{job}/{epoch}/outputs": FILES,
    "PUT /v1/pilot/jobs/{job}/{epoch}/streams/{stream}": FILES,
    "POST /v1/pilot/jobs/{job}/tail": FILES,
    "POST /v1/pilot/jobs/{job}/{epoch}/addresses": FILES,
    "POST /v1/pilot/probe": "a probe is no pilot, and has one row of its own",
}
DUTIES_LEFT_OUT: Final[Mapping[str, str]] = {
    "AddressDuty": SUMS,
    "AnnouncementDuty": SUMS,
    "CertificateDuty": NO_ROWS,
    "ClockDuty": NO_ROWS,
    "DiskDuty": NO_ROWS,
    "EmbeddedAgentDuty": "it starts an agent, whose messages are kinds of their own",
    "FeedDuty": NO_ROWS,
    "InformationDuty": FACTS,
    "LedgerDuty": SUMS,
    "LocalCesDuty": "a CE of this machine has the cycle of a batch system, which has a kind",
    "LocalInformationDuty": FACTS,
    "MailDuty": "it takes mails by a statement that deletes them",
    "PriorityDuty": NO_ROWS,
    "RecountDuty": NO_ROWS,
    "RelayDuty": NO_ROWS,
    "RenewalDuty": "the lease of a duty is one row, and its epoch fences the others",
    "SpanDuty": NO_ROWS,
    "StorageDuty": NO_ROWS,
}


def _concrete_duties() -> Iterator[str]:
    modules = [
        import_module(f"{duty_modules.__name__}.{module.name}")
        for module in iter_modules(duty_modules.__path__)
    ]
    for module in modules:
        for kind in vars(module).values():
            is_own = isinstance(kind, type) and kind.__module__ == module.__name__
            if is_own and issubclass(kind, Duty) and not isabstract(kind):
                yield kind.__name__


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_call_and_duty_has_a_kind_or_a_reason(world: World) -> None:
    served = {kind(world).serves for kind in KINDS.values()}
    calls = {key for key in handlers() if not key.startswith(("GET ", "HEAD "))}
    calls |= {f"POST {path}" for path in ENDPOINTS}
    classes = {type(make(world.first)).__name__ for make in duties.ALL.values()}
    assert calls - served == set(CALLS_LEFT_OUT)
    assert set(_concrete_duties()) - classes == set(DUTIES_LEFT_OUT)
