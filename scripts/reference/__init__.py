"""Makes the pages of docs/reference that follow from the code."""
