"""`pilotage match-ce`, `ce ad` and `job ad`: matchmaking, and the ads of both sides."""
