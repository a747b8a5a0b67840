"""Names, reasons and messages of other people reach a terminal as plain text: no escape sequence is printed raw."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import pilotage.cli
from pilotage.cli.dirac.status import _line
from pilotage.cli.slurm import sacct_columns, sinfo, squeue_columns
from pilotage.cli.slurm.columns import FormatPiece, TableColumn, print_table
from pilotage.cli.slurm.nodes import hosts_of
from pilotage.cli.slurm.usage import note
from pilotage.core.printable import printable, printable_lines

HOSTILE = "a\x1b]0;title\x07\x1b[2J\x9b31m\r\nJobId=1\u202eb\x85\u2028c"
ROOT = Path(pilotage.cli.__file__).parent

RAW = {
    "command_folder.py": "paths that the user has named",
    "console.py: facts": "its values are printable already",
    "console.py: json": "JSON for programs",
    "console.py: table": "names of columns",
    "ces/add.py": "a policy with the user's change",
    "dirac/output.py": "numbers and folders that the user has named",
    "dirac/submit.py": "numbers",
    "dirac/verbs.py": "numbers",
    "login.py": "the address and code of the user's own issuer",
    "policy/diff.py": "a policy",
    "policy/files.py": "a policy",
    "policy/versions.py": "a policy",
    "root.py": "our own help, and messages that are printable already",
    "slurm/columns.py: print_table": "cells by TableColumn.text, between texts of the user's format",
    "slurm/job_json.py": "JSON, which escapes control characters",
    "slurm/sacct.py": "cells by TableColumn.text, between the user's delimiters",
    "slurm/sbatch.py": "numbers",
    "slurm/scontrol.py": "lines by job_text and names by hosts_of, and the user's own words",
    "slurm/sinfo.py": "a date",
    "slurm/squeue.py": "a date",
    "slurm/usage.py: show_usage": "our own help",
    "submit.py": "the user's own description",
}
"""Where texts are printed without `printable`, by file and function, each with its reason."""


def _is_output(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in (
        "print",
        "sys.stdout.write",
        "sys.stderr.write",
    )


def _is_plain(argument: ast.expr) -> bool:
    called = ast.unparse(argument.func) if isinstance(argument, ast.Call) else ""
    return isinstance(argument, ast.Constant) or called in ("printable", "printable_lines")


def test_every_text_is_printed_by_the_one_function_or_has_a_reason() -> None:
    found = set[str]()
    for path in ROOT.rglob("*.py"):
        file = str(path.relative_to(ROOT))
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                for call in ast.walk(function):
                    if _is_output(call) and not all(map(_is_plain, cast(ast.Call, call).args)):
                        found.add(file if file in RAW else f"{file}: {function.name}")
    assert found == RAW.keys()


def test_nothing_but_a_comparison_reads_the_raw_value_of_a_column() -> None:
    raw = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "slurm").rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "value"
    }
    assert raw == {"slurm/columns.py", "slurm/squeue.py"}


def check(text: str, lines: int = 1) -> None:
    assert text.count("\n") == lines
    assert all(line.isprintable() for line in text.split("\n")), text


@pytest.mark.parametrize("columns", [squeue_columns.COLUMNS, sacct_columns.COLUMNS, sinfo.COLUMNS])
def test_cells_are_printable(columns: list[TableColumn[Any]], capsys: pytest.CaptureFixture[str]) -> None:
    hostile = [column._replace(value=lambda _: HOSTILE) for column in columns]
    print_table([FormatPiece(column, after="|") for column in hostile], [object()], header=False)
    check(capsys.readouterr().out)


def test_notes_hosts_and_lines_of_jobs_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    note("squeue", HOSTILE)
    check(capsys.readouterr().err)
    pilot = SimpleNamespace(ended=None, started=1.0, hostname=HOSTILE, processors=1, jobs=0, ce="one")
    [host] = hosts_of(cast(Any, SimpleNamespace(pilots=lambda: [pilot])))
    check(host.name, 0)
    job = SimpleNamespace(id=1, state="Failed", reason=HOSTILE, site=HOSTILE)
    check(printable(_line(cast(Any, job))), 0)
    assert all(line.isprintable() for line in printable_lines(HOSTILE).split("\n"))
