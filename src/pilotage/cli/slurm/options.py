"""Options of Slurm's commands: their meanings here, and the reading of a command line.

A table of options says for each one whether it is understood, ignored or refused. An option that no table has is an
error, so nothing is dropped silently.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pilotage.cli.parser import OMIT
from pilotage.core.errors import InvalidInput


class Treatment(StrEnum):
    """The treatment of an option by a command."""

    UNDERSTOOD = "understood"
    IGNORED = "ignored"
    REFUSED = "refused"


class Takes(StrEnum):
    """Whether an option has a value."""

    NOTHING = "nothing"
    VALUE = "value"
    LIST = "list"
    """A value with commas. An option that is given again adds to it."""
    OPTIONAL = "optional"
    """A value may follow a `=`; for a short option it may follow directly."""


class SlurmOption(NamedTuple):
    name: str
    """Without dashes."""
    short: str
    """One letter; "" if it has none."""
    takes: Takes
    treatment: Treatment
    text: str
    """Its meaning here, or the reason why it is ignored or refused."""
    variable: str = ""
    """The variable of the environment that sets it, for sbatch and srun."""
    means: str = ""
    """The name of the option of which this is another name."""

    @property
    def shown(self) -> str:
        return f"--{self.name}" if len(self.name) > 1 else f"-{self.name}"


def understood(
    names: str, text: str, takes: Takes = Takes.VALUE, *, variable: str = "", means: str = ""
) -> list[SlurmOption]:
    """The options of these names: `array`, or `array/a hide` with a short name. `means`: see `SlurmOption`.

    `*` in `variable` stands for the name of each, in capital letters.
    """
    return [
        option._replace(means=means)
        for option in _options(names, text, takes, Treatment.UNDERSTOOD, variable)
    ]


def ignored(names: str, text: str, takes: Takes = Takes.VALUE, *, variable: str = "") -> list[SlurmOption]:
    return _options(names, text, takes, Treatment.IGNORED, variable)


def refused(names: str, text: str, takes: Takes = Takes.VALUE, *, variable: str = "") -> list[SlurmOption]:
    return _options(names, text, takes, Treatment.REFUSED, variable)


def _options(names: str, text: str, takes: Takes, treatment: Treatment, variable: str) -> list[SlurmOption]:
    options = []
    for name in names.split():
        long, _, short = name.partition("/")
        set_by = variable.replace("*", long.upper().replace("-", "_"))
        options.append(SlurmOption(long, short, takes, treatment, text, set_by))
    return options


@dataclass
class ReadOptions:
    """The options of one source: a command line, the lines of a script, or variables."""

    values: dict[str, str] = field(default_factory=dict)
    """Values by name; "" for an option without a value."""
    rest: list[str] = field(default_factory=list)
    """Words that are no options."""

    def over(self, weaker: ReadOptions) -> ReadOptions:
        """These options, and further ones of a weaker source."""
        return ReadOptions(weaker.values | self.values, self.rest)


class OptionTable:
    """The options of one command."""

    def __init__(
        self, command: str, rows: Iterable[Iterable[SlurmOption]], *, permutes: bool, selects: bool = False
    ) -> None:
        """`permutes`: options may follow other words. Otherwise the first other word ends them.

        `selects`: options choose jobs or hosts. An empty value is refused: it would choose all.
        """
        self.command = command
        order = list(Treatment)
        self.options = tuple(
            sorted(
                itertools.chain.from_iterable(rows),
                key=lambda option: (order.index(option.treatment), option.name.lower()),
            )
        )
        self.permutes = permutes
        self.selects = selects
        self.by_name: Mapping[str, SlurmOption] = {option.name: option for option in self.options}
        self._by_short = {option.short: option for option in self.options if option.short}

    def read(self, words: Sequence[str], place: str = "") -> ReadOptions:
        """Read a command line. Raises InvalidInput for an unknown or refused option; `place` begins its message."""
        read, left = ReadOptions(), list(words)
        while left:
            word = left.pop(0)
            if word == "--":
                read.rest += left
                break
            if word.startswith("--"):
                self._read_long(read, word[2:], left, place)
            elif word.startswith("-") and word != "-":
                self._read_short(read, word[1:], left, place)
            else:
                self._need_value("an argument", word, place)
                read.rest.append(word)
                if not self.permutes:
                    read.rest += left
                    break
        return read

    def read_variables(self, environment: Mapping[str, str]) -> ReadOptions:
        """Options that variables set. A refused option is an error here too."""
        read = ReadOptions()
        for option in self.options:
            if option.variable and option.variable in environment:
                value = environment[option.variable]
                if self.selects and not value.strip():
                    continue
                if option.takes is Takes.NOTHING and value.lower() in ("no", "0", "false"):
                    continue
                self._take(
                    read, option, "" if option.takes is Takes.NOTHING else value, f"{option.variable}: "
                )
        return read

    def read_with_variables(
        self, words: Sequence[str], environment: Mapping[str, str], forms: Sequence[str]
    ) -> ReadOptions:
        """The command line over variables. A form that the line names, such as --json, is over forms of variables."""
        line, weaker = self.read(words), self.read_variables(environment)
        if any(name in line.values for name in forms):
            weaker.values = {name: value for name, value in weaker.values.items() if name not in forms}
        return line.over(weaker)

    def ignored_notes(self, read: ReadOptions) -> list[str]:
        """A sentence for each option that was given and is ignored."""
        return [
            f"{option.shown} is ignored: {option.text}"
            for name in read.values
            if (option := self.by_name[name]).treatment is Treatment.IGNORED
        ]

    def _read_long(self, read: ReadOptions, word: str, left: list[str], place: str) -> None:
        name, equals, value = word.partition("=")
        option = self._find(name, place)
        if option.takes is Takes.NOTHING:
            if equals:
                raise InvalidInput(f"{place}option {option.shown} takes no value")
        elif option.takes in (Takes.VALUE, Takes.LIST) and not equals:
            value = self._next(option, left, place)
        if equals or option.takes in (Takes.VALUE, Takes.LIST):
            self._need_value(option.shown, value, place)
        self._take(read, option, value, place)

    def _need_value(self, shown: str, value: str, place: str) -> None:
        if self.selects and not value.strip(", "):
            raise InvalidInput(f"{place}{shown} is empty", hint=OMIT)

    def _read_short(self, read: ReadOptions, letters: str, left: list[str], place: str) -> None:
        while letters:
            letter, letters = letters[0], letters[1:]
            option = self._by_short.get(letter)
            if option is None:
                raise InvalidInput(f"{place}unrecognized option '-{letter}'", hint=self._hint)
            value = ""
            if option.takes is not Takes.NOTHING:
                value, letters = letters, ""
                if not value and option.takes in (Takes.VALUE, Takes.LIST):
                    value = self._next(option, left, place)
            if option.takes in (Takes.VALUE, Takes.LIST):
                self._need_value(option.shown, value, place)
            self._take(read, option, value, place)

    def _find(self, name: str, place: str) -> SlurmOption:
        """The option of a name, which may be shortened as long as it stays unique."""
        if name in self.by_name:
            return self.by_name[name]
        listed = [option for option in self.options if name and option.name.startswith(name)]
        if len(listed) > 1:
            names = " or ".join(option.shown for option in listed[:4])
            raise InvalidInput(f"{place}option '--{name}' is ambiguous: {names}", hint=self._hint)
        if not listed:
            raise InvalidInput(f"{place}unrecognized option '--{name}'", hint=self._hint)
        return listed[0]

    def _next(self, option: SlurmOption, left: list[str], place: str) -> str:
        if not left:
            raise InvalidInput(f"{place}option {option.shown} needs a value", hint=self._hint)
        return left.pop(0)

    def _take(self, read: ReadOptions, option: SlurmOption, value: str, place: str) -> None:
        if option.treatment is Treatment.REFUSED:
            raise InvalidInput(f"{place}{option.shown} is refused: {option.text}")
        name = option.means or option.name
        earlier = read.values.get(name) if option.takes is Takes.LIST else None
        read.values[name] = value if earlier is None else f"{earlier},{value}"

    @property
    def _hint(self) -> str:
        return "docs/reference/slurm-commands.md has the options"
