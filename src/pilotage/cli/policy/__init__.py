"""`pilotage policy …`: what speaks to the server, what compares, what works on files alone."""
