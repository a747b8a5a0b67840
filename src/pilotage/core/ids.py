"""Identifiers: integers that must not be mixed up."""

from __future__ import annotations

from typing import NewType

JobId = NewType("JobId", int)
SubmissionId = NewType("SubmissionId", int)
QueueId = NewType("QueueId", int)
PilotId = NewType("PilotId", int)
