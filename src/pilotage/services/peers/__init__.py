"""Other servers on the same database: membership and their changes."""
