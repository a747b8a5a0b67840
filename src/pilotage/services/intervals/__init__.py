"""Waiting jobs and shares over time: how they are recorded, and the reports on them."""
