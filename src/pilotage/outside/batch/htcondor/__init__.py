"""HTCondor: arguments of its commands, readers of their output, and the adapter that uses both."""

from __future__ import annotations

from collections.abc import Mapping

from pilotage.core.policy import Ce
from pilotage.core.policy.batch_systems.htcondor import HtcondorOptions
from pilotage.outside.batch.htcondor.adapter import HtcondorBatch
from pilotage.outside.batch.registry import ServerMachine

VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "CONDOR_CONFIG", "BEARER_TOKEN_FILE")
"""Variables that HTCondor's commands get. Pilots do not get them."""


def make_adapter(ce: Ce, machine: ServerMachine, timeout: float) -> HtcondorBatch:
    """The adapter of the CE's schedd, under the account of the server."""
    options = ce.options_as(HtcondorOptions)
    environment = {**machine.variables(VARIABLES), **_own_variables(options)}
    rules = ce.forward_table.with_rules(ce.forward)
    return HtcondorBatch(machine.runner(environment), machine.user, options, timeout, rules)


def _own_variables(options: HtcondorOptions) -> Mapping[str, str]:
    """The variables of the options. A token alone proves who the server is, where one is given."""
    variables = {"CONDOR_CONFIG": options.conf} if options.conf else {}
    methods = []
    if options.scitoken:
        methods.append("SCITOKENS")
        variables["_CONDOR_SCITOKENS_FILE"] = options.scitoken
        variables["BEARER_TOKEN_FILE"] = options.scitoken
    if options.token_folder:
        methods.append("IDTOKENS")
        variables["_CONDOR_SEC_TOKEN_DIRECTORY"] = options.token_folder
    if methods:
        variables["_CONDOR_SEC_CLIENT_AUTHENTICATION_METHODS"] = ",".join(methods)
    return variables
