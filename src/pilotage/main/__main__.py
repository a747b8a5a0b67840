"""`python -m pilotage.main`: the program, for a server that starts itself again in the background."""

from __future__ import annotations

from pilotage.main import main

raise SystemExit(main())
