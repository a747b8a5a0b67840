"""The composition root. Environment, clock and chance come in here."""

from __future__ import annotations


def main() -> int:
    """Run one command line and return its exit code.

    All imports are inside: Ctrl-C during one of them ends the program with the usual exit code, without a traceback.
    """
    try:
        from pilotage.main.command_line import run_command_line

        return run_command_line()
    except KeyboardInterrupt:
        return 130
    except RuntimeError as error:
        # Python 3.11 wraps an interruption while a class is made, such as an enumeration of `re`.
        if isinstance(error.__cause__, KeyboardInterrupt):
            return 130
        raise
