"""The messages between the server and its clients, and between the server and its pilots.

Each module describes the routes of one subject and their bodies; docs/reference/api.md lists all routes. These rules
hold for every route under /v1:

- Bodies are JSON of the dataclasses here. Instants are seconds since 1970 (UTC); memory is in MB (2^20 bytes).
- Lists are paged by key: `after` is the last id received, `limit` is at most MAX_PAGE (wire/limits.py).
- Every answer that is not 2xx has an `ErrorBody` (wire/pilot.py).
- Requests carry `Authorization: Bearer <JSON Web Token>`. /live, /ready and /metrics need no token.
"""
