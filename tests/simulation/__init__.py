"""Simulations of whole histories with faults, in virtual time: one seed, one history."""
