"""Rows that servers of one database share: duty leases, changes, id blocks, limits."""
