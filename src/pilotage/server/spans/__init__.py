"""Spans of committed work: of requests, their pieces, jobs and attempts. They are made from the event logs."""
