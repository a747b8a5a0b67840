"""Pilotage: pilot-based workload management for distributed computing."""

__version__ = "0.1.0"
