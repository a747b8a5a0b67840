"""`match-ce`, `ce ad` and `job ad`: files without a server, what is asked of one, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.client.fake_server import State, job

Cli = Callable[..., int]

JDL = '[Executable = "/bin/true"; Requirements = other.GlueHostBenchmarkSI00 > 500 && other.Fast;]'
AD = """[
  id = "NAME"; update_time = 4102444800.0 - 4102444800.0;
  info = [GlueCEUniqueID = "NAME"; Fast = VALUE; GlueCEStateEstimatedResponseTime = 5];
]"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "job.jdl").write_text(JDL)
    for name, value in (("fast", "true"), ("slow", "false")):
        (tmp_path / f"{name}.ad").write_text(AD.replace("NAME", name).replace("VALUE", value))
    return tmp_path


def document(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_ads_from_files_need_no_server(
    cli: Cli, state: State, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("match-ce", f"{files}/job.jdl", "--ad", f"{files}/slow.ad", "--ad", f"{files}/fast.ad")
    assert cli(*words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "CE\tfast",
        "match\tyes",
        "rank\t-5",
        "residual\tother.GlueHostBenchmarkSI00 > 500",
    ]
    assert "said no\tother.fast is false (fast = false)" in lines
    assert lines[-1] == "2 CEs: 1 yes, 1 impossible"
    assert cli(*words, "--json", "--ce", "slow", "--owner", "ada", "--vo", "EGEE") == 0
    report = document(capsys)
    assert [answer["ce"] for answer in report["ces"]] == ["slow"]
    assert report["verdicts"] == {"impossible": 1}, "other ads are not counted"
    assert 'VirtualOrganisation = "EGEE"' in report["ad"]
    assert state.requests == []


def test_a_ce_that_no_ad_describes(
    cli: Cli, state: State, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("match-ce", f"{files}/job.jdl", "--ad", f"{files}/slow.ad", "--ce", "fast") == 4
    assert "no ad is of the CE fast\n  hint: CEs: slow" in capsys.readouterr().err
    assert state.requests == []


def test_the_mark_that_some_editors_put_before_a_text(cli: Cli, files: Path) -> None:
    for name in ("job.jdl", "fast.ad"):
        (files / name).write_text((files / name).read_text(), encoding="utf-8-sig")
    assert cli("match-ce", f"{files}/job.jdl", "--ad", f"{files}/fast.ad") == 0
    assert cli("ce", "ad", f"{files}/fast.ad") == 0


def test_a_path_is_never_the_name_of_a_ce(
    cli: Cli, state: State, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, reason in ((f"{files}/absent", "No such file"), (f"{files}", "Is a directory")):
        assert cli("ce", "ad", path) == 2
        assert reason in capsys.readouterr().err
    assert state.requests == []


def test_a_server_is_asked_about_a_job_and_about_a_file(
    cli: Cli, state: State, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {
        "owner": "ada",
        "group": "lab",
        "requirements": "",
        "ad": "[]",
        "warnings": ["a slip"],
        "later": 1,
    }
    state.failures = [(200, answer), (200, answer)]
    assert cli("match-ce", "12", "--ce", "far") == 0
    assert "warning: a slip" in capsys.readouterr().err
    assert cli("match-ce", f"{files}/job.jdl", "--group", "lab", "--limit", "3") == 0
    assert state.paths("POST") == ["/v1/matchmaking"] * 2


def test_the_hook_of_a_site_is_named_with_its_environment(
    cli: Cli, state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {"PATH": "/bin", "PILOTAGE_VO": "", "PILOTAGE_FLAGS": "a\nb", "X_Equal": "$(id); 'x'"}
    ce = {"ce": "farm", "verdict": "yes", "hook": "/etc/hook", "hook_environment": environment}
    report = {"owner": "", "group": "", "requirements": "", "ad": "[]", "ces": [ce], "job_state": "Running"}
    state.failures = [(200, report)]
    assert cli("match-ce", "12") == 0
    shown = capsys.readouterr()
    lines = [line.split("\t") for line in shown.out.splitlines()]
    assert ["hook", "/etc/hook decides further: it may add flags or refuse; it was not run"] in lines
    assert [words[1] for words in lines if words[0] == "hook gets"] == [
        "PILOTAGE_FLAGS='a\\nb'",
        "PILOTAGE_VO=",
        """X_Equal='$(id); '"'"'x'"'"''""",
    ]
    assert "note: the job does not wait (Running): the answer is for a new job like it" in shown.err


def test_the_ad_of_a_job_is_indented(cli: Cli, state: State, capsys: pytest.CaptureFixture[str]) -> None:
    state.jobs = {12: job(12)}
    assert cli("job", "ad", "12") == 0
    assert capsys.readouterr().out.splitlines() == ["[", '  Owner = "ada";', "]"]


def test_an_ad_in_a_file_is_checked(
    cli: Cli, state: State, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("ce", "ad", f"{files}/fast.ad") == 0
    text = capsys.readouterr()
    assert "    Fast = true;" in text.out
    assert "age of these facts is not known" in text.err
    slip = files / "slip.ad"
    slip.write_text('[id = "x"; info = [GlueHostBenchmarkSI000 = 4; se = gridftp05.cern.ch]]')
    assert cli("ce", "ad", str(slip)) == 1
    text = capsys.readouterr()
    assert "is GlueHostBenchmarkSI00 meant?" in text.err
    assert "info.se: gridftp05.cern.ch selects" in text.err
    assert state.requests == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[id = "x"; info = [a = 1;;]', "line 1, column"),
        ("[a = 1]", "no identity"),
        ('[id = "x"; update_time = 99999999999]', "from the future"),
        ('[id = "x"; A = 1; a = 2]', "line 1"),
        ("", "empty"),
        ('[id = "x"; a = ' + "(" * 300 + "1" + ")" * 300 + "]", "deep"),
        ('[id = "x"; a = "' + "y" * 1_100_000 + '"]', "longer"),
    ],
)
def test_bad_ads_are_refused_with_the_file(
    cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, expected: str
) -> None:
    (tmp_path / "bad.ad").write_text(text)
    (tmp_path / "job.jdl").write_text(JDL)
    for words in (("ce", "ad", "bad.ad"), ("match-ce", "job.jdl", "--ad", "bad.ad")):
        code = cli(*(f"{tmp_path}/{word}" if word.endswith((".ad", ".jdl")) else word for word in words))
        assert code not in (0, 1, 70)
        error = capsys.readouterr().err
        assert "bad.ad" in error
        assert expected in error


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("match-ce", "12", "--ad", "x.ad"), "matches a job file"),
        (("match-ce", "12", "--owner", "bob"), "has its owner"),
        (("match-ce", "no.jdl"), "cannot read"),
        (("match-ce", "1,2"), "'1,2' is no job"),
        (("match-ce", "1-3"), "give the number of one job"),
        (("match-ce", "no.jdl", "--vo", "EGEE"), "--vo goes with --ad"),
        (("match-ce", "-", "--ad", "-"), "standard input"),
        (("job", "ad", "99999999999999999999"), "no job"),
    ],
)
def test_wrong_words(
    cli: Cli, state: State, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: str
) -> None:
    assert cli(*words) not in (0, 70)
    assert expected in capsys.readouterr().err
