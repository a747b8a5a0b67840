"""`pilotage twin run` from its command line to its report, with runs that no simulation made."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pilotage.cli.root import INTERNAL, INTERRUPTED, JOB_FAILED, OK, build, run
from pilotage.main import twin_runs
from pilotage.main.command_line import SERVER_COMMANDS
from pilotage.main.twin_runs import FinishedRuns, RunInputs, SeededRun
from tests.unit.twin.invented_runs import WEIGHTS, invented_run
from tests.unit.twin.swf_text import job, swf_text

Output = pytest.CaptureFixture[str]
RunTwin = Callable[..., int]


@pytest.fixture
def run_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunTwin:
    """Runs the command; all seeds end as the arguments say."""
    trace = tmp_path / "trace.swf"
    trace.write_text(swf_text([job(1), job(2, processors=100)]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pilotage.twin.run", SimpleNamespace(run_twin=None))

    def command(
        *options: str,
        finish: Sequence[int],
        fail: Sequence[int] = (),
        interrupt: bool = False,
        standstill: str = "",
    ) -> int:
        def run_seeds(runs: Sequence[SeededRun], inputs: RunInputs, *_: object, **__: object) -> FinishedRuns:
            assert len(inputs.jobs) == 1
            finished = FinishedRuns(interrupted=interrupt)
            for one in runs:
                weights = WEIGHTS if one.policy != "b.toml" else WEIGHTS | {"atlas": 5.0}
                if one.seed in finish:
                    finished.measures[one] = replace(invented_run(weights, one.seed), standstill=standstill)
                elif one.seed in fail:
                    finished.failures[one] = "nothing fits"
            return finished

        monkeypatch.setattr(twin_runs, "run_seeds", run_seeds)
        given = ["twin", "run", "--trace", str(trace), "--out", "out", "--seeds", "2", *options]
        return run(build(SERVER_COMMANDS), given)

    return command


def test_finished_runs_are_printed_and_written(run_twin: RunTwin, capfd: Output) -> None:
    assert run_twin(finish=(1, 2)) == OK
    printed = capfd.readouterr()
    assert "default policy: Waits by group\ngroup\tjobs\tnot_started\t10_%" in printed.out
    assert "not simulated: the network" in printed.out
    assert "note: 1 of 2 jobs are larger than every pilot" in printed.err
    assert Path("out/report.html").exists()
    assert json.loads(Path("out/report.json").read_text())["partial"] is False


def test_policies_are_compared(run_twin: RunTwin, capfd: Output) -> None:
    run(build(SERVER_COMMANDS), ["twin", "policy", "--trace", "trace.swf"])
    text = capfd.readouterr().out
    for name in ("a.toml", "b.toml"):
        Path(name).write_text(text)
    assert run_twin("--policy", "a.toml", "--policy", "b.toml", finish=(1, 2)) == OK
    assert "b.toml instead of a.toml:\n  group atlas: -" in capfd.readouterr().out


def test_a_failed_run_is_told_beside_the_others(run_twin: RunTwin, capfd: Output) -> None:
    assert run_twin(finish=(1,), fail=(2,)) == INTERNAL
    printed = capfd.readouterr()
    assert "pilotage: the run of default policy with seed 2 failed: nothing fits" in printed.err
    assert "This report is partial: 1 of 2 runs have finished, others failed." in printed.out


def test_a_standstill_is_told_and_has_an_exit_code(run_twin: RunTwin, capfd: Output) -> None:
    assert run_twin(finish=(1, 2), standstill="3 jobs still wait. <b>") == JOB_FAILED
    told = "default policy came to a standstill: 2 of 2 runs: 3 jobs still wait. <b>."
    assert told in capfd.readouterr().out
    assert json.loads(Path("out/report.json").read_text())["standstills"] == [told]
    assert "3 jobs still wait. &lt;b&gt;." in Path("out/report.html").read_text()


def test_an_interruption_keeps_the_finished_runs(run_twin: RunTwin, capfd: Output) -> None:
    assert run_twin(finish=(1,), interrupt=True) == INTERRUPTED
    printed = capfd.readouterr()
    assert printed.err.endswith("pilotage: interrupted\n")
    assert "This report is partial: 1 of 2 runs have finished, it was interrupted." in printed.out
    assert json.loads(Path("out/report.json").read_text())["partial"] is True


def test_an_interruption_before_all_ends_leaves_no_folder(run_twin: RunTwin, capfd: Output) -> None:
    assert run_twin(finish=(), interrupt=True) == INTERRUPTED
    assert capfd.readouterr().err.endswith("pilotage: interrupted: no run had finished\n")
    assert not Path("out").exists()
