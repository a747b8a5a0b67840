"""`pilotage policy …`: commands that speak to the server, comparisons, and commands that work on files alone."""
