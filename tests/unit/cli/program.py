"""The command line in a process of its own."""

from __future__ import annotations

PROGRAM = """\
import signal, sys
from pilotage.cli.root import build, run
# Ctrl-C is ignored from the start where the tests run in the background of a shell.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(run(build(), sys.argv[1:]))
"""
"""To be run with `-c`; its arguments are those of `pilotage`."""
