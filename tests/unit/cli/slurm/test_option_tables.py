"""Options of Slurm's commands: each spelling of a command line has the same meaning, and nothing is dropped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.cli.slurm.options import OptionTable, ReadOptions, SlurmOption, Takes, Treatment
from pilotage.cli.slurm.query_options import (
    SACCT_OPTIONS,
    SCANCEL_OPTIONS,
    SCONTROL_OPTIONS,
    SINFO_OPTIONS,
    SQUEUE_OPTIONS,
)
from pilotage.cli.slurm.sbatch_options import SBATCH_OPTIONS
from pilotage.cli.slurm.srun_options import SRUN_OPTIONS
from pilotage.core.errors import InvalidInput

TABLES = (
    SBATCH_OPTIONS, SRUN_OPTIONS, SQUEUE_OPTIONS, SACCT_OPTIONS, SCANCEL_OPTIONS, SCONTROL_OPTIONS, SINFO_OPTIONS,
)  # fmt: skip
VALUES = st.text(min_size=1, max_size=8).filter(lambda text: not text.startswith("-"))
ACCEPTED = [option for option in SBATCH_OPTIONS.options if option.treatment is not Treatment.REFUSED]


@st.composite
def spelled(draw: st.DrawFn, option: SlurmOption) -> tuple[list[str], str]:
    """(words that give the option, its value), with one of the spellings that Slurm has for it."""
    if option.takes is Takes.NOTHING:
        return [draw(st.sampled_from([option.shown, *([f"-{option.short}"] if option.short else [])]))], ""
    value = draw(VALUES)
    spellings = [[f"{option.shown}={value}"]]
    if option.takes in (Takes.VALUE, Takes.LIST):
        spellings.append([option.shown, value])
    if option.short:
        spellings.append([f"-{option.short}{value}"])
        if option.takes in (Takes.VALUE, Takes.LIST):
            spellings.append([f"-{option.short}", value])
    return draw(st.sampled_from(spellings)), value


@given(st.data())
def test_each_spelling_gives_the_value_and_leaves_the_script_alone(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(ACCEPTED), unique=True, max_size=6))
    words, values = [], {}
    for option in chosen:
        spelling, value = data.draw(spelled(option))
        words += spelling
        values[option.means or option.name] = value
    arguments = data.draw(st.lists(st.text(max_size=5), max_size=3))
    read = SBATCH_OPTIONS.read([*words, "job.sh", *arguments])
    assert read.values == values
    assert read.rest == ["job.sh", *arguments], "words after the script are the script's"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.command)
def test_each_option_is_read_told_as_ignored_or_refused_by_its_name(table: OptionTable) -> None:
    for option in table.options:
        words = [option.shown] if option.takes is Takes.NOTHING else [f"{option.shown}=1"]
        if option.treatment is Treatment.REFUSED:
            with pytest.raises(InvalidInput, match=f"{option.shown} is refused: "):
                table.read(words)
            continue
        read = table.read(words)
        assert read.values.keys() == {option.means or option.name}
        told = [f"{option.shown} is ignored: {option.text}"]
        assert table.ignored_notes(read) == (told if option.treatment is Treatment.IGNORED else [])


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.command)
def test_names_are_unique_and_may_be_shortened_while_they_stay_so(table: OptionTable) -> None:
    names = [option.name for option in table.options]
    letters = [option.short for option in table.options if option.short]
    assert (len(set(names)), len(set(letters))) == (len(names), len(letters))
    for option in table.options:
        for end in range(1, len(option.name)):
            short = option.name[:end]
            others = [name for name in names if name.startswith(short)]
            if short in names or option.treatment is Treatment.REFUSED:
                continue
            word = f"--{short}" if option.takes is Takes.NOTHING else f"--{short}=1"
            if others == [option.name]:
                assert (option.means or option.name) in table.read([word]).values
            else:
                with pytest.raises(InvalidInput, match="is ambiguous"):
                    table.read([word])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nosuch"], "unrecognized option '--nosuch'"),
        (["-?"], "unrecognized option '-\\?'"),
        (["--output"], "option --output needs a value"),
        (["-o"], "option --output needs a value"),
        (["--hold=yes"], "option --hold takes no value"),
    ],
)
def test_wrong_words(words: list[str], said: str) -> None:
    with pytest.raises(InvalidInput, match=f"line 3: {said}"):
        SBATCH_OPTIONS.read(words, place="line 3: ")


def test_the_command_line_is_stronger_than_variables_and_variables_than_lines() -> None:
    line = SBATCH_OPTIONS.read(["-J", "line", "job.sh", "-J", "argument"])
    variables = SBATCH_OPTIONS.read_variables({"SBATCH_JOB_NAME": "variable", "SBATCH_TIMELIMIT": "5"})
    script = SBATCH_OPTIONS.read(["-J", "script", "-t", "9", "-c", "2"])
    assert line.over(variables).over(script) == ReadOptions(
        {"job-name": "line", "time": "5", "cpus-per-task": "2"}, ["job.sh", "-J", "argument"]
    )


def test_a_variable_without_value_may_say_no_and_a_refused_one_is_an_error() -> None:
    assert SBATCH_OPTIONS.read_variables({"SBATCH_WAIT": "no"}).values == {}
    assert SBATCH_OPTIONS.read_variables({"SBATCH_WAIT": "1"}).values == {"wait": ""}
    with pytest.raises(InvalidInput, match="SBATCH_RESERVATION: --reservation is refused"):
        SBATCH_OPTIONS.read_variables({"SBATCH_RESERVATION": "x"})


def test_lists_of_sacct_grow_with_each_option() -> None:
    """As in Slurm: a program asks for several jobs by one option each."""
    read = SACCT_OPTIONS.read(
        ["-j", "1", "--jobs=2,3", "-j4", "-o", "JobID", "--format", "State", "-S", "1", "-S", "2"]
    )
    assert read.values == {"jobs": "1,2,3,4", "format": "JobID,State", "starttime": "2"}
