"""The server's side of a pilot: enrolment, exchange, leases."""
