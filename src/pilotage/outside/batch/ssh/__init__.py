"""Reach over ssh: commands of batch systems on a login node, over a connection that a person has opened."""
