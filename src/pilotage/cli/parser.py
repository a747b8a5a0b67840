"""Parameters of commands: declared in annotations, parsed by click.

    def logs(job: Annotated[int, CommandArgument("Number of the job", "JOB")], *, stderr: StderrOption) -> None: ...

Declarations do not import click, so that a module of commands stays cheap to import.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from pilotage.core.errors import InvalidInput

if TYPE_CHECKING:
    import click


OMIT = "omit it, or give it a value"


class CommandOption:
    """An option of a command: its words for --help, and its names, such as `-a --all` or `--trust/--no-trust`.

    Without names it has that of its parameter.
    """

    def __init__(
        self,
        help: str,
        metavar: str | None = None,
        *,
        names: str = "",
        envvar: str | None = None,
        min: int | None = None,
        max: int | None = None,
        hidden: bool = False,
        show_default: bool | str = True,
        may_be_empty: bool = False,
    ) -> None:
        """`may_be_empty`: an empty text is a value. Otherwise it is refused, as it may be an unset variable."""
        self.names = names.split()
        self.help = help
        self.metavar = metavar
        self.envvar = envvar
        self.min = min
        self.max = max
        self.hidden = hidden
        self.show_default = show_default
        self.may_be_empty = may_be_empty

    def declare(self, name: str, kind: _ParameterType, default: object) -> click.Option:
        """The option for click. `name`: of the parameter that takes its value."""
        import click

        required = default is inspect.Parameter.empty
        no_value = required or default is None or default == "" or default is False
        return click.Option(
            [name, *(self.names or [f"--{name.replace('_', '-')}"])],
            type=_value_type(kind.of, self.min, self.max),
            is_flag=kind.of is bool,
            multiple=kind.many,
            required=required,
            **_default(kind, default),
            metavar=self.metavar or kind.choices,
            help=self.help,
            envvar=self.envvar,
            show_envvar=self.envvar is not None,
            show_default=self.show_default if not no_value else False,
            hidden=self.hidden,
            callback=_converter(kind, default, may_be_empty=self.may_be_empty),
        )


class CommandArgument:
    """A positional argument of a command; its parameter is a list if there may be several."""

    def __init__(
        self,
        help: str,
        metavar: str,
        *,
        min: int | None = None,
        max: int | None = None,
        may_be_empty: bool = False,
    ) -> None:
        """`may_be_empty`: see `CommandOption`."""
        self.help = help
        self.metavar = metavar
        self.min = min
        self.max = max
        self.may_be_empty = may_be_empty

    def declare(self, name: str, kind: _ParameterType, default: object) -> click.Argument:
        """The argument for click. `name`: of the parameter that takes its value."""
        import click

        required = default is inspect.Parameter.empty
        marked = required or "..." in self.metavar or self.metavar.startswith("[")
        shown = self.metavar if marked else f"[{self.metavar}]"
        return click.Argument(
            [name],
            type=_value_type(kind.of, self.min, self.max),
            nargs=-1 if kind.many else 1,
            required=required,
            **_default(kind, default),
            metavar=f"{shown}..." if kind.many and "..." not in shown else shown,
            help=self.help,
            callback=_converter(kind, default, may_be_empty=self.may_be_empty),
        )


@dataclass(frozen=True)
class _ParameterType:
    """The type of a parameter: one value, or a list of values."""

    of: type
    many: bool

    @property
    def choices(self) -> str | None:
        return "|".join(member.value for member in self.of) if issubclass(self.of, Enum) else None


def parser_of(command: Callable[..., Any]) -> click.Command:
    """The parser of a function whose parameters are annotated with CommandOption and CommandArgument."""
    import click

    parameters: list[click.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind, declaration = _read(parameter.annotation)
        parameters.append(declaration.declare(parameter.name, kind, parameter.default))
    return click.Command(
        command.__name__,
        params=parameters,
        callback=command,
        help=inspect.cleandoc(command.__doc__ or ""),
        context_settings={"help_option_names": ["--help", "-h"]},
    )


def _read(annotation: Any) -> tuple[_ParameterType, CommandOption | CommandArgument]:
    assert get_origin(annotation) is Annotated, annotation
    declared, declaration = get_args(annotation)
    if isinstance(declared, UnionType):
        [declared] = [part for part in get_args(declared) if part is not NoneType]
    if get_origin(declared) is list:
        return _ParameterType(get_args(declared)[0], many=True), declaration
    return _ParameterType(declared, many=False), declaration


def _value_type(kind: type, least: int | None, most: int | None) -> Any:
    """The type by which click reads one value."""
    import click

    if issubclass(kind, Enum):
        return click.Choice([member.value for member in kind])
    if kind is Path:
        return _path_type()
    if kind is int and (least is not None or most is not None):
        return click.IntRange(least, most)
    return kind


@cache
def _path_type() -> click.Path:
    """The type of paths. An empty one would mean the current folder."""
    import click

    class GivenPath(click.Path):
        def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
            if not str(value).strip():
                raise InvalidInput(f"{_shown(param, ctx)} is empty", hint=OMIT)
            return super().convert(value, param, ctx)

    return GivenPath(path_type=Path)


def _shown(parameter: click.Parameter | None, context: click.Context | None) -> str:
    """The name of a parameter in messages: `--site`, or `JOB`."""
    if parameter is None or context is None:
        return "a path"
    if parameter.param_type_name == "option":
        return parameter.opts[-1]
    return parameter.make_metavar(context)


def _default(kind: _ParameterType, default: object) -> dict[str, Any]:
    """The default for click: none where a value is required, as click takes None for a value."""
    if kind.many or default is inspect.Parameter.empty:
        return {}
    return {"default": default.value if isinstance(default, Enum) else default}


def _converter(
    kind: _ParameterType, default: object, *, may_be_empty: bool
) -> Callable[[Any, Any, Any], object] | None:
    """Converts the value of click for a command: to a list, or to None if nothing is given and None is the default.

    Refuses an empty text of the command line unless it may be empty.
    """

    def convert(context: click.Context, parameter: click.Parameter, given: Any) -> object:
        if not may_be_empty:
            _refuse_empty(context, parameter, given if kind.many else [given])
        if kind.many:
            return list(given) or (None if default is None else [])
        return kind.of(given) if issubclass(kind.of, Enum) else given

    return convert


def _refuse_empty(context: click.Context, parameter: click.Parameter, given: Iterable[Any]) -> None:
    from click.core import ParameterSource

    if context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE and not all(
        str(value).strip() for value in given
    ):
        raise InvalidInput(f"{_shown(parameter, context)} is empty", hint=OMIT)
