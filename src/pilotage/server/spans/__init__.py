"""Spans of committed work: of requests, their elements, jobs and attempts. They are made from the event logs."""
