"""One new file is enough: each plug-in point finds a module that is added to a copy of the program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadlines import PATIENCE
from tests.unit.docs import json_pbs_plug_in

ROOT = Path(__file__).parents[3]

CORRECTOR = """\
from typing import Annotated, ClassVar

from pilotage.core.setting import Setting
from pilotage.core.shares.corrector import Competition, CorrectorInstance, InstanceMemory
from pilotage.core.shares.reports import EntityReport


class KarmaInstance(CorrectorInstance, frozen=True):
    corrector: ClassVar[str] = "Karma"
    meaning: ClassVar[str] = "the same factor for everybody"
    example: ClassVar[str] = "[correction.Karma.groups]\\nkarma = 2\\n"

    karma: Annotated[float, Setting("the factor of all", 0.5, 2.0)] = 1.0

    @property
    def correction_range(self) -> tuple[float, float]:
        return self.karma, self.karma

    def correct(
        self, competition: Competition, memory: InstanceMemory
    ) -> tuple[tuple[EntityReport, ...], InstanceMemory]:
        return tuple(EntityReport(name, (), self.karma, self.karma) for name in competition.waiting), {}
"""
POLICY = """\
[groups.g]
[users.u]
groups = ["g"]
[correction]
correctors = ["Karma"]
[correction.Karma.all]
karma = 2
"""
CALL = """\
from typing import Dict

from pilotage.wire.call import PERSON, ApiCall, NoRequest

KARMA = ApiCall("GET", "/v1/karma", NoRequest, Dict[str, int], PERSON)
"""
ROUTE = '''\
from pilotage.server.http.call_router import CallRouter
from pilotage.wire.karma import KARMA

router = CallRouter("karma")


@router.call(KARMA)
def karma() -> dict[str, int]:
    """The karma of the server."""
    return {"karma": 1}
'''
START_POLICY = """\
from pilotage.core.requests.start_policies.block import BlockPolicy
from pilotage.core.requests.start_policy import StartPlan, StepInput


class KarmaPolicy(BlockPolicy):
    name = "Karma"
    meaning = "the first block only"

    def plan(self, step: StepInput) -> StartPlan:
        return StartPlan(super().plan(step).elements[:1])
"""
BATCH_OPTIONS = """\
from typing import Annotated, ClassVar

from pilotage.core.policy.batch_options import BatchOptions
from pilotage.core.setting import Setting


class KarmaOptions(BatchOptions, frozen=True):
    meaning: ClassVar[str] = "batch jobs of Karma"

    lane: Annotated[str, Setting("the lane of its pilots")] = "slow"
"""
ADAPTER = """\
from pilotage.outside.batch.local import LocalBatch


class KarmaBatch(LocalBatch):
    def __init__(self, lane, *options, **named):
        super().__init__(*options, **named)
        self.lane = lane


def make_adapter(ce, machine, timeout):
    return KarmaBatch(ce.karma.lane, machine.environment, machine.logs)
"""
KARMA_CE = """
[sites.here]
[ces.karma]
site = "here"
type = "karma"
[ces.karma.karma]
lane = "fast"
"""
PBS_CE = """
[sites.here]
[ces.json_pbs]
site = "here"
type = "json_pbs"
[ces.json_pbs.json_pbs]
queue = "long"
"""
MISUSE = """
from pilotage.core.policy import Ce
from pilotage.core.policy.batch_systems.json_pbs import JsonPbsOptions


def cores(ce: Ce) -> int:
    return ce.options_as(JsonPbsOptions).queue
"""
SPLITTING = """\
from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar

from pilotage.core.setting import Setting
from pilotage.core.splitting.algorithm import Algorithm, Amount
from pilotage.core.splitting.mask import Mask
from pilotage.core.splitting.pieces import Piece


class KarmaBased(Algorithm, frozen=True, kw_only=True):
    algorithm: ClassVar[str] = "KarmaBased"
    meaning: ClassVar[str] = "all files of an element, the lucky ones first"
    example: ClassVar[str] = "luck = 3\\n"

    luck: Annotated[int, Setting("the divisor of lucky files", 1, 13)]

    def split(self, pieces: Iterable[Piece], *, closed: bool) -> Iterator[Mask]:
        ordered = sorted(pieces, key=lambda piece: piece.file % self.luck)
        if ordered:
            yield Mask(tuple(piece.range for piece in ordered), events=sum(piece.events for piece in ordered))

    def estimate_jobs(self, amount: Amount) -> int:
        return 1
"""
BENCHMARK = """\
import argparse

from benchmarks.figure import Figure, figure

SUMMARY = "additions"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--times", type=int, default=3)


def run(options: argparse.Namespace) -> Figure:
    return figure("karma", "sums", [float(options.times)] * 3, {"limit": 6.0}, {})
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the program and its benchmarks, with one new file at each plug-in point."""
    root = tmp_path_factory.mktemp("copy")
    skipped = shutil.ignore_patterns("__pycache__")
    # With compiled modules: copies keep the times by which Python knows that they are still valid.
    shutil.copytree(ROOT / "src" / "pilotage", root / "pilotage")
    shutil.copytree(ROOT / "benchmarks", root / "benchmarks", ignore=skipped)
    shutil.copytree(ROOT / "scripts", root / "scripts", ignore=skipped)
    (root / "pilotage" / "core" / "shares" / "correctors" / "karma.py").write_text(CORRECTOR)
    (root / "pilotage" / "core" / "policy" / "batch_systems" / "karma.py").write_text(BATCH_OPTIONS)
    (root / "pilotage" / "outside" / "batch" / "karma.py").write_text(ADAPTER)
    (root / "pilotage" / "core" / "policy" / "batch_systems" / "json_pbs.py").write_text(
        json_pbs_plug_in.OPTIONS
    )
    (root / "pilotage" / "outside" / "batch" / "json_pbs.py").write_text(json_pbs_plug_in.ADAPTER)
    (root / "pilotage" / "core" / "requests" / "start_policies" / "karma.py").write_text(START_POLICY)
    (root / "pilotage" / "core" / "splitting" / "algorithms" / "karma.py").write_text(SPLITTING)
    (root / "ces.toml").write_text(POLICY + KARMA_CE)
    (root / "pilotage" / "server" / "http" / "routes" / "karma.py").write_text(ROUTE)
    (root / "pilotage" / "wire" / "karma.py").write_text(CALL)
    (root / "benchmarks" / "karma.py").write_text(BENCHMARK)
    (root / "policy.toml").write_text(POLICY)
    return root


def python(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(copy), "PILOTAGE_HOME": str(copy / "home")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )


CHECKS = """
import os, sys
from pilotage.cli.root import run
from pilotage.main.command_line import SERVER_COMMANDS, build
for name in sys.argv[1:]:
    if not os.fork():
        for file, stream in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{name}.{stream}", os.O_WRONLY | os.O_CREAT, 0o600), file)
        sys.exit(run(build(SERVER_COMMANDS), ["policy", "check", "--offline", name]))
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def assert_checked(copy: Path, valid: str, *wrong: tuple[str, str]) -> None:
    """`pilotage policy check` accepts a policy, and refuses each of the others with its message."""
    folder = copy / "checks"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    names = [str(folder / f"{number}.toml") for number in range(1 + len(wrong))]
    for name, text in zip(names, [valid, *(text for text, _ in wrong)], strict=True):
        Path(name).write_text(text)
    done = python(copy, "-c", CHECKS, *names)
    codes = [int(code) for code in done.stdout.split()]
    said = Path(f"{names[0]}.out").read_text() + Path(f"{names[0]}.err").read_text()
    assert codes[0] == 0, said
    assert "0.toml is a valid policy" in said
    for name, code, (_, message) in zip(names[1:], codes[1:], wrong, strict=True):
        assert code in (1, 2)
        assert message in Path(f"{name}.err").read_text()


def test_a_corrector_is_found_by_the_check_of_a_policy(copy: Path) -> None:
    number = "correction.Karma.all.karma must be a number from 0.5 to 2"
    assert_checked(
        copy,
        POLICY,
        (POLICY.replace("karma = 2", "karma = 3"), number),
        (POLICY.replace("karma = 2", "kharma = 2"), "did you mean karma?"),
        (POLICY.replace('["Karma"]', '["Fate"]'), "known: HalfLife, Karma, WMSHistory"),
    )


def test_a_corrector_works(copy: Path) -> None:
    code = """
from pathlib import Path
from pilotage.core.policy import parse
from pilotage.core.shares.correction import Facts, correct
policy = parse(Path("policy.toml").read_text())
facts = Facts(policy.shares(), frozenset({("u", "g")}), policy.admits, dict, dict, 60.0)
names = policy.correction.correctors
print(correct(names, {name: policy.correction.instances_of(name) for name in names}, facts, {}).groups)
"""
    assert python(copy, "-c", code).stdout == "{'g': 2.0}\n"


def test_a_splitting_algorithm_works_and_stands_in_the_pages(copy: Path) -> None:
    code = """
from pilotage.core.errors import InvalidInput
from pilotage.core.splitting.mask import FileRecord
from pilotage.core.splitting.parser import parse_splitting
from pilotage.core.splitting.split import split
files = [FileRecord(number, str(number)) for number in (1, 2, 3)]
print([part.file for mask in split(files, parse_splitting("KarmaBased", {"luck": 3})) for part in mask.ranges])
try:
    parse_splitting("KarmaBased", {"lukc": 3})
except InvalidInput as error:
    print(error.hint)
from scripts.reference.pages import PAGES
print(PAGES["requests.md"]())
"""
    done = python(copy, "-c", code)
    assert done.stdout.startswith("[3, 1, 2]\ndid you mean luck?\n"), done.stderr
    assert "all files of an element, the lucky ones first" in done.stdout.lower()
    assert "the divisor of lucky files" in done.stdout


def test_a_corrector_and_a_route_are_in_the_pages(copy: Path) -> None:
    code = "from scripts.reference.pages import the_policy, addresses; print(the_policy(), addresses())"
    pages = python(copy, "-c", code)
    assert "| `correction.Karma.*.karma` | number | `1` | 0.5 to 2 | the factor of all |" in pages.stdout, (
        pages.stderr
    )
    assert "`Karma`: the same factor for everybody." in pages.stdout
    assert "| `GET` | `/v1/karma` | The karma of the server. |" in pages.stdout


def test_a_batch_system_is_found_by_the_check_of_a_policy(copy: Path) -> None:
    text = POLICY + KARMA_CE
    assert_checked(
        copy,
        text,
        (text.replace('type = "karma"', 'type = "kharma"'), "karma (batch jobs of Karma)"),
        (text.replace("lane =", "lnae ="), "did you mean lane?"),
    )


def test_a_batch_system_has_its_adapter_and_stands_in_the_pages(copy: Path) -> None:
    code = """
from pathlib import Path
from pilotage.core.policy import parse
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.registry import ServerMachine, make_adapter_of
ce = parse(Path("ces.toml").read_text()).ces["karma"]
batch = make_adapter_of(ce, ServerMachine({}, "me", Path("logs")))
receipt = batch.submit(BatchSubmission("pilotage-plug-in", 1, Shape(1), "echo hello"))
for child in batch._children.values():
    child.wait()
print(type(batch).__name__, batch.lane, batch.output("pilotage-plug-in", 0, 100))
"""
    assert python(copy, "-c", code).stdout == "KarmaBatch fast hello\n\n"
    code = "from scripts.reference.pages import the_policy; print(the_policy())"
    pages = python(copy, "-c", code)
    assert '| `ces.*.karma.lane` | text | `"slow"` |  | the lane of its pilots |' in pages.stdout, (
        pages.stderr
    )


def test_the_options_of_an_adapter_have_their_types(copy: Path) -> None:
    (copy / "json_pbs.toml").write_text(POLICY + PBS_CE)
    done = python(copy, "-m", "pilotage.main", "policy", "check", "--offline", "json_pbs.toml")
    assert done.returncode == 0, done.stderr
    (copy / "misuse.py").write_text(MISUSE)
    options = (f"--config-file={ROOT / 'pyproject.toml'}", "--follow-imports=silent", "--cache-dir=mypy")
    files = (
        "pilotage/core/policy/batch_systems/json_pbs.py",
        "pilotage/outside/batch/json_pbs.py",
        "misuse.py",
    )
    checked = python(copy, "-m", "mypy", *options, *files)
    wrong, *summary = checked.stdout.splitlines()
    assert wrong.startswith('misuse.py:7: error: Incompatible return value type (got "str", expected "int")')
    assert summary == ["Found 1 error in 1 file (checked 3 source files)"]


def test_an_adapter_passes_the_contract_suite_without_its_batch_system(copy: Path) -> None:
    shutil.copytree(
        ROOT / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__", "fuzz", "unit")
    )
    shutil.copy(
        ROOT / "tests" / "unit" / "docs" / "json_pbs.jsonl", copy / "tests" / "contract" / "transcripts"
    )
    suite = ("tests/contract/test_batch_systems.py", "-k", "json_pbs", "--noconftest")
    done = python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", *suite)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout.splitlines()[-1]
    with (copy / "tests" / "contract" / "transcripts" / "json_pbs.jsonl").open() as transcript:
        cases = sum('{"case": ' in line for line in transcript)
    assert done.stdout.splitlines()[-1].startswith(f"{cases} passed, "), done.stdout


def test_a_batch_system_can_be_added_to_a_policy(copy: Path) -> None:
    code = """
from pilotage.cli.ces.add import _check_usage
from pilotage.core.policy import initial, parse
from pilotage.core.policy.new_ce import NewCe, NodeSize, PartitionFacts, batch_section, insert_section
_check_usage("karma", {"lane": "fast"}, 3, None, "")
partition = PartitionFacts("all", True, True, None, (NodeSize(1, 8, 8000),))
section = batch_section(NewCe("more", "here", options={"lane": "fast"}), "karma", partition)
ce = parse(insert_section(initial("ada", "here"), "more", section)).ces["more"]
print(ce.type, ce.karma.lane, ce.pilot_processors)
_check_usage("karma", {"partition": "all"}, None, None, "")
"""
    done = python(copy, "-c", code)
    assert done.stdout == "karma fast 4\n", done.stderr
    assert "a CE of type karma has no --partition" in done.stderr


def test_a_start_policy_may_be_named_in_a_request_and_stands_in_the_page(copy: Path) -> None:
    code = """
from pilotage.core.requests.fields import STEP
from pilotage.core.requests.start_policies import START_POLICIES
from pilotage.core.requests.start_policy import InputBlock, StepInput
[given] = [field.field for field in STEP if field.name == "start_policy"]
blocks = [InputBlock(number, f"b{number}", 1, 1, 1, 1) for number in range(3)]
plan = START_POLICIES["Karma"].plan(StepInput(blocks=blocks))
print(given.choices, "Karma: the first block only" in given.meaning, len(plan.elements))
"""
    done = python(copy, "-c", code)
    assert done.stdout == "('Block', 'Dataset', 'Karma', 'MonteCarlo') True 1\n", done.stderr


def test_a_benchmark_is_listed_and_runs(copy: Path) -> None:
    listed = python(copy, "-m", "benchmarks")
    assert "karma    additions" in listed.stdout
    done = python(copy, "-m", "benchmarks", "karma", "--times", "12", "--json")
    assert json.loads(done.stdout.splitlines()[-1])["ratio"] == 2.0, done.stderr
