"""ARC CEs: their REST interface, job descriptions, readers of their answers, and the adapter that uses them.

rest         calls, and one error for every missing answer
credentials  the token or certificate of the server's own
description  pilots as job descriptions
answers      readers of answers about jobs
information  readers of the GLUE2 document
jobs         the jobs of the identity, with their names
adapter      the `BatchAdapter`
"""

from __future__ import annotations

import os

from pilotage.core.policy import Ce
from pilotage.core.policy.batch_systems.arc import ArcOptions
from pilotage.outside.batch.arc.adapter import ArcBatch
from pilotage.outside.batch.arc.rest import ArcClient
from pilotage.outside.batch.registry import ServerMachine

VARIABLES = ("BEARER_TOKEN", "BEARER_TOKEN_FILE", "XDG_RUNTIME_DIR", "X509_CERT_DIR")
"""Variables that name the credential of the server's account, and CAs."""


def make_adapter(ce: Ce, machine: ServerMachine, timeout: float) -> ArcBatch:
    """The adapter of the CE, with the credential of the server's own."""
    options = ce.options_as(ArcOptions)
    client = ArcClient(options, machine.variables(VARIABLES), os.getuid(), timeout, machine.connect)
    return ArcBatch(client, options)
