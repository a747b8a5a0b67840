"""Splitting: how the data of an element become the masks of its jobs."""
