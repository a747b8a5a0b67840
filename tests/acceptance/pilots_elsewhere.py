"""A server whose pilots start in another network namespace: `PROGRAM NAMESPACE-WRAPPER arguments of pilotage`.

The wrapper stands in the place of the interpreter that the server gives its local pilots.
"""

from __future__ import annotations

import sys

from pilotage.main import main

if __name__ == "__main__":
    sys.executable = sys.argv.pop(1)
    raise SystemExit(main())
