"""The Python client of Pilotage. See docs/reference/client.md.

Importing it is cheap; the HTTP library is loaded with the first Client.
"""

from pilotage.client.api import Client
from pilotage.client.credentials import TokenFile
from pilotage.client.downloads import Download
from pilotage.client.polling import LogPiece
from pilotage.wire.jobs import Selection
from pilotage.wire.submissions import Parameters, SubmitResponse

__all__ = ["Client", "Download", "LogPiece", "Parameters", "Selection", "SubmitResponse", "TokenFile"]
