"""The Python client of Pilotage. See docs/reference/client.md.

Importing it is cheap: each of its modules is imported when it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilotage.client.api import Client
    from pilotage.client.credentials import TokenFile
    from pilotage.client.downloads import Download
    from pilotage.client.polling import LogPiece
    from pilotage.wire.jobs import Selection
    from pilotage.wire.submissions import Parameters, SubmitResponse
else:
    _PLACES = {
        "Client": "pilotage.client.api",
        "Download": "pilotage.client.downloads",
        "LogPiece": "pilotage.client.polling",
        "Parameters": "pilotage.wire.submissions",
        "Selection": "pilotage.wire.jobs",
        "SubmitResponse": "pilotage.wire.submissions",
        "TokenFile": "pilotage.client.credentials",
    }

    def __getattr__(name: str) -> object:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_PLACES[name]), name)


__all__ = ["Client", "Download", "LogPiece", "Parameters", "Selection", "SubmitResponse", "TokenFile"]
