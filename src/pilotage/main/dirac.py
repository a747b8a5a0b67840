"""A command of DIRAC: `pilotage dirac-commands` writes the scripts that call it."""

from __future__ import annotations

import sys


def main() -> int:
    """Run one command line and return its exit code. The imports are inside, as in `pilotage.main`."""
    try:
        from pilotage.cli.dirac.commands import DIRAC_COMMANDS
        from pilotage.cli.root import Root, run

        return run(Root(DIRAC_COMMANDS, {}, program=""), sys.argv[1:])
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
