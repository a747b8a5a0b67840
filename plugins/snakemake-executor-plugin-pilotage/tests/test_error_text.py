"""The line that says why a rule failed, in the standard error of its job."""

from __future__ import annotations

import pytest
from snakemake_executor_plugin_pilotage.error_text import line_of_error

BEGIN = """Select jobs to execute...

[Thu Nov 26 08:14:17 2026]
localrule bad:
    output: bad.txt
    reason: Forced execution
    resources: tmpdir=/tmp, mem_mb=1000
"""
REPORT = """RuleException:
ValueError in file "/w/Snakefile", line 9:
no such plane
[Thu Nov 26 08:14:17 2026]
Error in rule bad:
"""
SILENT = """RuleException:
CalledProcessError in file "/w/Snakefile", line 28:
Command 'set -euo pipefail;  (map data.txt) 2> map.log' returned non-zero exit status 127.
[Thu Nov 26 08:14:17 2026]
Error in rule bad:
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (BEGIN + "warming up\nno calibration\n\n" + REPORT, "no calibration"),
        (BEGIN + REPORT, 'RuleException: ValueError in file "/w/Snakefile", line 9: no such plane'),
        (BEGIN + SILENT, "its command wrote no error, and ended with exit status 127"),
        ("sh: 1: snakemake: not found\n", "sh: 1: snakemake: not found"),
        ("WorkflowError:\nFile missing\n", "WorkflowError: File missing"),
        ("", ""),
    ],
)
def test_the_cause_is_found(text: str, line: str) -> None:
    assert line_of_error(text) == line
