"""The change feed: one reader of the event logs for all listeners of a server."""
