"""Creating, upgrading, copying and checking a database."""
