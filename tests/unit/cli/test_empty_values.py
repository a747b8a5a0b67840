"""An empty value, as of an unset variable of a script, never means "all": each command refuses it before it acts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click
import pytest

from pilotage.cli.root import build, parser_of
from pilotage.cli.slurm.options import SlurmOption, Takes, Treatment
from pilotage.cli.slurm.query_options import (
    SACCT_OPTIONS,
    SCANCEL_OPTIONS,
    SCONTROL_OPTIONS,
    SINFO_OPTIONS,
    SQUEUE_OPTIONS,
)
from pilotage.core.errors import InvalidInput
from pilotage.main.command_line import SERVER_COMMANDS
from tests.unit.client.fake_server import State, job

Cli = Callable[..., int]

QUERIES = (SACCT_OPTIONS, SCANCEL_OPTIONS, SCONTROL_OPTIONS, SINFO_OPTIONS, SQUEUE_OPTIONS)

MAY_BE_EMPTY = {
    "--reason": "it is recorded, and selects nothing",
    "--name": "of submit and rerun: a job without a name",
    "--banned-sites": "it is the whole list: no site is banned",
    "FILE": "of submit: a word of the job's command",
    "WORDS": "of completion: the last word is not begun",
}


def texts() -> Iterator[tuple[str, click.Parameter]]:
    """Each parameter of each command whose value is a text or a path."""
    for name, command in build(SERVER_COMMANDS).commands.items():
        for parameter in parser_of(command).params:
            if isinstance(parameter.type, (click.types.StringParamType, click.Path)):
                yield name, parameter


def shown(parameter: click.Parameter) -> str:
    return (
        parameter.opts[-1] if parameter.param_type_name == "option" else str(parameter.metavar).strip("[].")
    )


def accepts_empty(name: str, parameter: click.Parameter) -> bool:
    words = ["", *([""] if parameter.nargs == 2 else [])]
    given = [parameter.opts[-1], *words] if parameter.param_type_name == "option" else words
    alone = click.Command(name, params=[parameter])
    try:
        alone.make_context(name, given)
    except (InvalidInput, click.UsageError):
        return False
    return True


def test_no_command_takes_an_empty_text_unless_it_says_so() -> None:
    found = {(name, shown(parameter)) for name, parameter in texts() if accepts_empty(name, parameter)}
    assert {parameter for _, parameter in found} == set(MAY_BE_EMPTY)
    assert {name for name, parameter in found if parameter == "--name"} == {"submit", "rerun"}
    assert {name for name, parameter in found if parameter == "FILE"} == {"submit"}


def options(table: object) -> list[SlurmOption]:
    return [
        option
        for option in table.options  # type: ignore[attr-defined]
        if option.treatment is Treatment.UNDERSTOOD and option.takes is not Takes.NOTHING
    ]


@pytest.mark.parametrize("empty", ["", " ", ",", " , "])
@pytest.mark.parametrize("table", QUERIES, ids=lambda table: table.command)
def test_no_query_of_slurm_takes_an_empty_value(table: object, empty: str) -> None:
    for option in options(table):
        lines = [[f"--{option.name}={empty}"]]
        if option.takes is not Takes.OPTIONAL:
            lines += [[f"--{option.name}", empty], *([[f"-{option.short}", empty]] if option.short else [])]
        for line in lines:
            with pytest.raises(InvalidInput, match="is empty"):
                table.read(line)  # type: ignore[attr-defined]
    with pytest.raises(InvalidInput, match="an argument is empty"):
        table.read([empty])  # type: ignore[attr-defined]


def test_an_empty_variable_of_squeue_is_none() -> None:
    empty = {option.variable: " " for option in SQUEUE_OPTIONS.options if option.variable}
    assert SQUEUE_OPTIONS.read_variables(empty).values == {}


@pytest.mark.parametrize(
    "line",
    [("ban", "bob", "--site", ""), ("unban", "bob", "--site", " "), ("kill", ""), ("kill", "--state", ",")],
)
def test_a_verb_with_an_empty_value_does_nothing(
    line: tuple[str, ...], cli: Cli, state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    state.jobs = {1: job(1)}
    assert cli(*line) == 2
    assert "is empty" in capsys.readouterr().err
    assert not state.seen
