"""Use cases of the catalogue: data sets, their files, and where they are."""
