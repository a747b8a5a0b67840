"""`pilotage ce …`: commands about computing elements."""
