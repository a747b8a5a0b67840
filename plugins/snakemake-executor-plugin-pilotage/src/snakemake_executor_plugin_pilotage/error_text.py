"""Which line of a job's standard error says why the rule failed."""

from __future__ import annotations

import re

_REPORT = ("RuleException", "Error in rule", "WorkflowError")
"""How Snakemake's own report of a failure begins, in the standard error of the job."""
_ANNOUNCEMENT = ("resources:", "Reason:", "reason:", "threads:")
_EXIT_STATUS = re.compile(r"CalledProcessError .* returned non-zero exit status (\d+)")


def line_of_error(text: str) -> str:
    """The last line that the command of the rule wrote, else the beginning of Snakemake's own report.

    Of a command that wrote nothing it is the exit status: Snakemake shows the command anyway.
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    report = next((number for number, line in enumerate(lines) if line.startswith(_REPORT)), len(lines))
    written = lines[report - 1] if report else ""
    if written and not written.strip().startswith(_ANNOUNCEMENT):
        return written.strip()
    begin = " ".join(line.strip() for line in lines[report : report + 3])
    status = _EXIT_STATUS.search(" ".join(lines[report:]))
    return (
        f"its command wrote no error, and ended with exit status {status[1]}" if status else begin.rstrip(".")
    )
