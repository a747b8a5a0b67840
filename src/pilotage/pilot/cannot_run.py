"""The refusal of a payload that cannot be started."""

from __future__ import annotations

from typing import Optional

NOT_EXECUTABLE = 126
NOT_FOUND = 127


class CannotRun(Exception):
    """The payload cannot be started.

    `exit_code` is the code that a shell would give. `failure` is the failure class, empty if the payload is to blame.
    """

    def __init__(self, message: str, exit_code: Optional[int] = None, failure: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.failure = failure
