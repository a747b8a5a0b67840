"""Slurm: arguments of its commands, readers of their text output, and the adapter that uses both."""
