"""Files and options of `pilotage twin`, and its command lines that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotage.cli.console import CommandOutput
from pilotage.cli.root import CONFLICT, USAGE, build, run
from pilotage.core.errors import InvalidInput
from pilotage.core.policy import parse
from pilotage.main.command_line import SERVER_COMMANDS
from pilotage.main.twin_inputs import DEFAULT_POLICY, TwinInputs, parse_policies, read_inputs
from tests.unit.twin.swf_text import job, swf_text

CES = "[[ces.grid.nodes]]\ncount = 2\nprocessors = 16\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "trace.swf"
    file.write_text(swf_text([job(1, wall=30.0), job(2, group="group2", processors=4)]) + "3 4\n")
    return file


def inputs_of(trace: Path, ces: Path | None = None, cores: int = 0) -> TwinInputs:
    return read_inputs(trace, "kb-per-processor", ces, cores, CommandOutput())


def test_cores_come_from_the_header_an_option_or_a_file(trace: Path, tmp_path: Path) -> None:
    file = tmp_path / "ces.toml"
    file.write_text(CES)
    assert [inputs_of(trace, *given).ces[0].cores for given in ((), (None, 24), (file,))] == [64, 24, 32]


def test_notes_tell_what_is_left_out_and_simplified(trace: Path) -> None:
    assert inputs_of(trace).notes == (
        "1 line (5): the line has fewer than 18 fields",
        "1 job ran longer than asked for; here their time has no limit of its own",
    )


def test_the_default_policy_has_the_given_shares(trace: Path) -> None:
    texts = inputs_of(trace).policy_texts([], ["group2=250"])
    assert parse(texts[DEFAULT_POLICY]).shares() == {"group1": 1000.0, "group2": 250.0}


def test_policies_have_the_names_of_their_files(trace: Path, tmp_path: Path) -> None:
    text = inputs_of(trace).policy_texts([], [])[DEFAULT_POLICY]
    files = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        files.append(str(tmp_path / folder / "p.toml"))
        Path(files[-1]).write_text(text)
    assert list(inputs_of(trace).policy_texts(files[:1], [])) == ["p.toml"]
    assert list(inputs_of(trace).policy_texts(files, [])) == files


def test_a_mistake_in_a_policy_names_the_file() -> None:
    with pytest.raises(InvalidInput) as error:
        parse_policies({"p.toml": "[groups.a]\nshares = 3\n"})
    assert str(error.value).startswith("p.toml: line 2: unknown key shares")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--trace", "none.swf"], "there is no file none.swf"),
        (["--memory-unit", "mb"], "there is no memory unit mb"),
        (["--cores", "8", "--ces", "ces.toml"], "--ces and --cores contradict each other"),
        (
            ["--ces", "bad.toml"],
            "bad.toml: line 2: ces.grid.nodes.0.count must be a number from 1 to 1,000,000",
        ),
        (["--ces", "absent.toml"], "cannot read absent.toml: No such file or directory"),
        (["--share", "group1"], "--share group1 is not GROUP=NUMBER"),
        (["--share", "atlas=3"], "the trace has no group atlas"),
        (["--share", "group1=3", "--policy", "p.toml"], "--share changes the default policy only"),
        (["--policy", "p.toml", "--policy", "p.toml"], "--policy names one file twice"),
        (["--policy", "p.toml"], "p.toml has no CE trace, so its jobs could not run there"),
        (["--until", "soon"], "'soon' is not a duration"),
        (["--until", "0"], "--until must be longer than 0 s"),
    ],
)
def test_a_refused_command_line_is_one_sentence(
    options: list[str],
    message: str,
    trace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ces.toml").write_text(CES)
    (tmp_path / "bad.toml").write_text(CES.replace("2", "0"))
    (tmp_path / "p.toml").write_text("[groups.group1]\n[users.user1]\ngroups = ['group1']\n")
    given = ["--trace", str(trace)] if "--trace" not in options else []
    code = run(build(SERVER_COMMANDS), ["twin", "run", *given, "--out", "report", *options])
    assert code == USAGE
    assert capfd.readouterr().err.startswith(f"pilotage: {message}")
    assert not (tmp_path / "report").exists()


def test_a_folder_with_files_is_refused(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = run(build(SERVER_COMMANDS), ["twin", "run", "--trace", str(trace), "--out", str(trace.parent)])
    assert code == CONFLICT
    assert "is not empty" in capfd.readouterr().err


def test_the_default_policy_is_printed(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(build(SERVER_COMMANDS), ["twin", "policy", "--trace", str(trace), "--cores", "16"]) == 0
    policy = parse(capfd.readouterr().out)
    assert policy.shares() == {"group1": 1000.0, "group2": 1000.0}
    assert policy.ces["trace"].max_running == 2
