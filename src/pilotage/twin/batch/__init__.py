"""Batch systems in virtual time, and the adapter by which a director uses them."""
