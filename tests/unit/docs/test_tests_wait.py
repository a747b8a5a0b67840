"""Tests wait for events, and concern their own processes alone: a loaded machine and other tests change nothing.

Each rule is a mistake that a run on a loaded machine has found.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = ("acceptance", "faults", "pilot", "contract")

SEES_ALL_PROCESSES = {
    "tests/instance.py": "by variables of the environment, which name one batch job",
    "tests/arc.py": "by the folder of one ARC CE",
    "tests/htcondor.py": "by the folder of one pool",
    "tests/acceptance/test_isolation.py": "by a number of this process",
    "tests/contract/test_batch_systems.py": "by the folder of one batch system",
    "tests/faults/test_ssh.py": "by the network of one site, or the name of one socket",
    "tests/pilot/pilot_server.py": "children of one process",
    "tests/pilot/test_isolation.py": "by a number of this process, or the address of one server",
}
"""Modules that look at the processes of all tests, and how they find their own."""


@cache
def modules() -> dict[str, str]:
    """The text of each module that starts real processes, by its path."""
    paths = [*(ROOT / "tests").glob("*.py")]
    for folder in FOLDERS:
        paths += (ROOT / "tests" / folder).glob("*.py")
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def lines_with(pattern: str) -> list[str]:
    """The lines of all modules in which the pattern is found."""
    found = re.compile(pattern)
    return [
        f"{path}:{number}: {line.strip()}"
        for path, text in sorted(modules().items())
        for number, line in enumerate(text.splitlines(), 1)
        if found.search(line)
    ]


def test_the_pilot_of_a_job_is_not_the_only_one_that_lives() -> None:
    """`Instance.pilot_of` finds it. The director may have submitted others, and an earlier one may be idle."""
    assert lines_with(r"\[\w+\] = \[.*pilots\(\) if .*(\.ended|\.state|\.started)\b") == []


def test_commands_wait_as_long_as_tests_do() -> None:
    """A time that runs out on purpose is one second."""
    assert lines_with(r'"--timeout", "(?!1s|soon|0)') == []
    assert lines_with(r'"timeout": \d') == []


def test_calls_of_servers_wait_as_long_as_tests_do() -> None:
    """httpx gives up after five seconds by itself. A loaded server may need them for its first page."""
    calls = re.compile(r"httpx\.(get|post|put|delete|head|patch|options|request|stream|Client|AsyncClient)\(")
    short = []
    for path, text in modules().items():
        for node in ast.walk(ast.parse(text)) if calls.search(text) else ():
            if isinstance(node, ast.Call) and calls.fullmatch(f"{ast.unparse(node.func)}("):
                given = {keyword.arg for keyword in node.keywords}
                short += [] if "timeout" in given else [f"{path}:{node.lineno}"]
    assert short == []


def test_facts_of_ces_do_not_expire_before_the_next_answer() -> None:
    """They expire after five periods, unless the policy says otherwise."""
    short = re.compile(r"information_period\s*=\s*\"?\d\b")
    for path, text in modules().items():
        if short.search(text):
            assert "information_expiry" in text or "test_slurm import" in text, path
    assert "information_expiry = 300" in modules()["tests/acceptance/test_slurm.py"]


def test_only_known_modules_look_at_the_processes_of_other_tests() -> None:
    """A test that finds processes by a word alone would find, or end, those of a test beside it."""
    walk = re.compile(r'Path\("/proc"\)\.(glob|iterdir)')
    assert {path for path, text in modules().items() if walk.search(text)} == SEES_ALL_PROCESSES.keys()
    assert lines_with(r"\b(pkill|killall)\b") == []


def test_jobs_run_until_a_fault_has_met_them() -> None:
    """`BatchShape.submit_held`: jobs that sleep may end before a slow command has made the fault."""
    slow = [line for line in lines_with(r"\bsubmit\(.*seconds=[2-9]") if line.startswith("tests/faults/")]
    assert slow == []


PASSES = re.compile(r"'(Running|RUNNING|PENDING|full)'|\.(waits|running)\b")
"""States that pass by when a job ends."""
ENDS_ITSELF = re.compile(r"sleep'?[^\n]{0,16}?[\[ ]'?(\d{1,3}(\.\d+)?)'")
"""A job that sleeps for less than a quarter of an hour."""


def test_states_that_pass_are_looked_for_while_a_job_is_held() -> None:
    """`held_job` runs until the test has seen them: on a loaded machine the looks lie minutes apart."""
    found = {path: list(_looks_for_what_passes(text)) for path, text in modules().items()}
    assert {path: lines for path, lines in found.items() if lines} == {}


def _looks_for_what_passes(text: str) -> Iterator[int]:
    """Functions that wait for a passing state of a job which ends by itself."""
    if "sleep" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and ENDS_ITSELF.search(ast.unparse(node)):
            calls = [call for call in ast.walk(node) if isinstance(call, ast.Call) and call.args]
            waits = [ast.unparse(call.args[0]) for call in calls if ast.unparse(call.func) == "until"]
            if any(PASSES.search(waited) for waited in waits):
                yield node.lineno


def test_pages_are_looked_at_when_they_are_there() -> None:
    """Right after a click the old page may still be shown: a wait for the new one stands between."""
    wrong = [f"{path}:{line}" for path, text in modules().items() for line in _looks_after_clicks(text)]
    assert wrong == []


def _looks_after_clicks(text: str) -> Iterator[int]:
    """Lines with an assertion about `main` or `body`, which every page has, right after a click."""
    if ".click()" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        for before, statement in (
            zip(body or (), (body or ())[1:], strict=False) if isinstance(body, list) else ()
        ):
            looks = ast.unparse(statement)
            everywhere = "'main'" in looks or "'body'" in looks
            if ast.unparse(before).endswith(".click()") and isinstance(statement, ast.Assert) and everywhere:
                yield statement.lineno
