"""The table of DIRAC's commands. Imports no command."""

from __future__ import annotations

from pilotage.cli.commands import LazyCommand

DIRAC_COMMANDS = {
    f"dirac-wms-job-{name}": LazyCommand(f"pilotage.cli.dirac.{module}", attribute, text)
    for name, module, attribute, text in (
        ("submit", "submit", "submit", "Submit jobs described in JDL"),
        ("status", "status", "status", "Show the states of jobs"),
        ("get-output", "output", "get_output", "Download the outputs of jobs"),
        ("peek", "peek", "peek", "Show the standard output of jobs so far"),
        ("kill", "verbs", "kill", "Kill jobs"),
        ("reschedule", "verbs", "reschedule", "Queue failed or killed jobs again"),
        ("delete", "verbs", "delete", "Delete jobs and their outputs"),
    )
}
