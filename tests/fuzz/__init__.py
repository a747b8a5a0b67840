"""Hostile texts at random for every parser: `python -m tests.fuzz --seconds 600`."""
