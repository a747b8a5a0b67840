"""Functions as jobs: `pilotage.Executor`. See docs/how-to/map-functions.md."""
