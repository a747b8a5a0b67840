"""Plug-ins for Pilotage from another distribution."""
