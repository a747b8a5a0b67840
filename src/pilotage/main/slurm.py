"""A command of Slurm: `pilotage slurm-commands` writes the scripts that call it."""

from __future__ import annotations

import sys


def main() -> int:
    """Run one command line and return its exit code. The imports are inside, as in `pilotage.main`."""
    try:
        from pilotage.cli.slurm.run import run

        return run(sys.argv[1], sys.argv[2:])
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
