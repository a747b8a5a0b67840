"""Outputs of jobs that are inputs of others: the source `12/result.json` of an input."""

from __future__ import annotations

from typing import NamedTuple

from pilotage.core.errors import InvalidInput

FIELD = "input_sandbox"


class JobOutput(NamedTuple):
    """An output of a job, by the id of the job or by its name in a document."""

    parent: str
    path: str

    @property
    def number(self) -> int:
        """The id of the job. Raises InvalidInput for a name, which only its document knows."""
        text = self.parent
        if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text)):
            raise InvalidInput(
                f"{FIELD}: {text!r:.100} is not the id of a job",
                hint="write job:12/result.json; names are known to jobs of the same document",
                field=FIELD,
            )
        return int(text)


def job_output(source: str) -> JobOutput:
    """The inverse of `source_of`."""
    parent, _, path = source.partition("/")
    return JobOutput(parent, path)


def source_of(parent: str, path: str) -> str:
    return f"{parent}/{path}"
