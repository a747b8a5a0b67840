"""Commands for data sets."""
