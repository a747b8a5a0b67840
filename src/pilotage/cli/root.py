"""The root of the command line: finds the command, and turns errors into exit codes.

It parses nothing but the name of the command and the global options before it. The module of a command is
imported when the command is called or its help is asked for, so `pilotage --help` costs no imports.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pilotage import __version__
from pilotage.cli.commands import COMMANDS, GROUPS, LazyCommand
from pilotage.cli.stdio import describe_system_error, discard_output, prepare_streams
from pilotage.core.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotAuthenticated,
    NotFound,
    Overloaded,
    PilotageError,
    Unreachable,
)
from pilotage.core.printable import printable_lines

if TYPE_CHECKING:
    import click

__all__ = ["LazyCommand", "Root", "build", "run"]

OK, JOB_FAILED, USAGE, NOT_ALLOWED, NOT_FOUND, CONFLICT, UNREACHABLE, OVERLOADED, OUTPUT_MISSING = range(9)
INTERNAL, INTERRUPTED = 70, 130

EXIT_CODES: tuple[tuple[int, str], ...] = (
    (OK, "success"),
    (
        JOB_FAILED,
        "a job did not end as Done (`wait`, `submit --wait`, `output`); policies differ"
        " (`policy diff --exit-code`); usage is outside its bounds (`fairness check`); damage (`db check`);"
        " jobs would wait for ever (`twin run`)",
    ),
    (USAGE, "invalid usage or input"),
    (NOT_ALLOWED, "not authenticated, or not allowed"),
    (NOT_FOUND, "no such job, submission, pilot"),
    (CONFLICT, "the current state does not allow the operation"),
    (UNREACHABLE, "the server does not answer"),
    (OVERLOADED, "the server is busy: try again later"),
    (
        OUTPUT_MISSING,
        "all jobs are Done, but an output is missing (`wait`, `submit --wait`, `output`)",
    ),
    (INTERNAL, "an error inside pilotage: please report it"),
    (INTERRUPTED, "interrupted (Ctrl-C)"),
)

BY_ERROR: tuple[tuple[type[PilotageError], int], ...] = (
    (InvalidInput, USAGE),
    (NotAuthenticated, NOT_ALLOWED),
    (Forbidden, NOT_ALLOWED),
    (NotFound, NOT_FOUND),
    (Conflict, CONFLICT),
    (Unreachable, UNREACHABLE),
    (Overloaded, OVERLOADED),
)

VALUE_OPTIONS = ("--home", "--server", "--token-file")


class Root(NamedTuple):
    """All commands by their full name ("submit", "token create"), and the help of the groups ("token")."""

    commands: dict[str, LazyCommand]
    groups: dict[str, str]
    program: str = "pilotage "
    """The words that people type before the name of a command, with a space at the end."""


def build(extra: Mapping[str, LazyCommand] | None = None) -> Root:
    """The commands of this package and `extra` ones, which stand before `down` and replace others of the same name."""
    names = list(COMMANDS)
    place = names.index("down")
    own = COMMANDS | dict(extra or {})
    ordered = {name: own[name] for name in [*names[:place], *(extra or {}), *names[place:]]}
    used = {" ".join(name.split()[:length]) for name in ordered for length in range(1, len(name.split()))}
    groups = {name: text for name, text in GROUPS.items() if name in used}
    groups |= {name: "Commands of a plug-in" for name in sorted(used - groups.keys() - ordered.keys())}
    return Root(ordered, groups)


def names_command(root: Root, argv: Sequence[str]) -> bool:
    """Whether a command line names a command of `root`: not its overview, a group, or an unknown word."""
    try:
        _, words = _global_options(list(argv))
        return bool(words) and not words[0].startswith("-") and _resolve(root, words)[0] in root.commands
    except InvalidInput:
        return False


Explain = Callable[[Exception], Exception | None]
"""The error for a person in place of another one; None: it is not known."""


def run(root: Root, argv: Sequence[str], explain: Explain = describe_system_error) -> int:
    """Run one command line (without the program's name) and give the exit code; nothing is raised."""
    debug = "--debug" in _before_dashes(argv) or bool(os.environ.get("PILOTAGE_DEBUG"))
    words = [word for word in argv if word != "--debug"] if debug else list(argv)
    report = _report_as_json if "--json" in _before_dashes(argv) else _report
    return run_reported(lambda: _dispatch(root, words), report, explain, debug=debug)


def run_reported(
    work: Callable[[], int],
    report: Callable[[Failure], None],
    explain: Explain = describe_system_error,
    *,
    debug: bool = False,
) -> int:
    """Run `work` with usable streams, report each error once, and give the exit code; nothing is raised."""
    prepare_streams()
    report = _once(report)
    code = _run_guarded(work, report, explain, debug)
    # Otherwise Python reports output that it cannot write at its end.
    flushed = _run_guarded(_flush, report, explain, debug)
    discard_output()
    return code or flushed


def _once(report: Callable[[Failure], None]) -> Callable[[Failure], None]:
    """`report`, without a repetition: output that cannot be written fails again at the last flush."""
    reported: set[Failure] = set()

    def report_new(failure: Failure) -> None:
        if failure not in reported:
            reported.add(failure)
            report(failure)

    return report_new


def _flush() -> int:
    sys.stdout.flush()
    return OK


def _run_guarded(
    work: Callable[[], int], report: Callable[[Failure], None], explain: Explain, debug: bool
) -> int:
    """Run `work`; report every error, and turn it into an exit code."""
    try:
        return work()
    except KeyboardInterrupt:
        report(INTERRUPTION)
        return INTERRUPTED
    except BrokenPipeError:
        return OK  # the reader, such as head, has closed the pipe
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else OK if leaving.code is None else USAGE
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # Python 3.11 wraps it while a class is made
            report(INTERRUPTION)
            return INTERRUPTED
        if debug:
            import traceback

            traceback.print_exc()
        failure = _failure_of(explain(error) or error, debug)
        report(failure)
        return failure.exit_code


def _before_dashes(argv: Sequence[str]) -> Sequence[str]:
    return argv[: list(argv).index("--")] if "--" in argv else argv


def _dispatch(root: Root, argv: list[str]) -> int:
    shared, rest = _global_options(argv)
    if not rest or rest[0] in ("--help", "-h", "help"):
        words = rest[1:] if rest and rest[0] == "help" else []
        if words:
            return _dispatch(root, [*words, "--help"])
        print(overview(root))
        return OK if rest else USAGE
    if rest[0] in ("--version", "-V"):
        print(f"pilotage {__version__}")
        return OK
    if rest[0].startswith("-"):
        raise InvalidInput(f"no such option: {rest[0]}", hint="see `pilotage --help`")
    name, arguments = _resolve(root, rest)
    if name in root.groups:
        print(overview(root, name))
        return OK if arguments else USAGE
    return call(f"{root.program}{name}", root.commands[name], [*shared, *arguments])


def _global_options(argv: list[str]) -> tuple[list[str], list[str]]:
    """Options of every command may also stand before it: they are handed on to it."""
    shared: list[str] = []
    rest = list(argv)
    while rest:
        option, equals, _ = rest[0].partition("=")
        if option in VALUE_OPTIONS:
            count = 1 if equals else 2
            if len(rest) < count:
                raise InvalidInput(f"{option} needs a value")
            shared, rest = [*shared, *rest[:count]], rest[count:]
        elif rest[0] == "--json":
            shared, rest = [*shared, rest[0]], rest[1:]
        else:
            break
    return shared, rest


def _resolve(root: Root, words: list[str]) -> tuple[str, list[str]]:
    """The command's full name and its arguments; or a group's name and whether its help was asked for."""
    name, rest = words[0], words[1:]
    longer = " ".join(words[:2])
    if name not in root.groups and longer in root.commands:  # such as `ban USER` and `ban list`
        return longer, words[2:]
    if name not in root.commands and name not in root.groups:
        raise InvalidInput(
            f"there is no command {name!r}", hint=_suggest(name, [*_top(root)]) or "see `pilotage --help`"
        )
    while name in root.groups and rest and rest[0] not in ("--help", "-h"):
        group, name = name, f"{name} {rest[0]}"
        if name not in root.commands and name not in root.groups:
            hint = _suggest(rest[0], [*_members(root, group)]) or f"see `pilotage {group} --help`"
            raise InvalidInput(f"there is no command {name!r}", hint=hint)
        rest = rest[1:]
    return name, rest


def _suggest(word: str, known: list[str]) -> str:
    import difflib

    alike = difflib.get_close_matches(word, known, n=2, cutoff=0.6)
    return f"did you mean {' or '.join(alike)}?" if alike else ""


def _top(root: Root) -> dict[str, str]:
    """The rows of the overview: single commands and groups, with their short help."""
    return _members(root, "")


def _members(root: Root, group: str) -> dict[str, str]:
    """The commands and groups directly in a group ("": the root), with their short help."""
    prefix = f"{group} " if group else ""
    helps = {name: command.help for name, command in root.commands.items()} | root.groups
    return {
        name.removeprefix(prefix): text
        for name, text in helps.items()
        if name.startswith(prefix) and " " not in name.removeprefix(prefix)
    }


def overview(root: Root, group: str = "") -> str:
    """The help of the root or of a group."""
    if group:
        head = root.groups[group]
        rows = _members(root, group)
        usage = f"pilotage {group} COMMAND [OPTIONS] [ARGUMENTS]"
    else:
        head = "Pilotage: a workload management system with pilots."
        rows, usage = _top(root), "pilotage COMMAND [OPTIONS] [ARGUMENTS]"
    width = max(len(name) for name in rows) + 2
    lines = [f"Usage: {usage}", "", head, "", "Commands:"]
    lines += [f"  {name:<{width}}{text}" for name, text in rows.items()]
    prefix = f"pilotage {group} " if group else "pilotage "
    lines += ["", f"Help for a command: {prefix}COMMAND --help"]
    if not group:
        lines += [
            "",
            "Options of all commands that connect to the server:",
            "  --json             print one JSON document",
            "  --home DIR         home folder of the server (PILOTAGE_HOME, ~/.pilotage)",
            "  --server URL       address of the server (PILOTAGE_SERVER)",
            "  --token-file FILE  token file (PILOTAGE_TOKEN_FILE)",
            "  --debug            print the Python traceback of an error",
        ]
    return "\n".join(lines)


def parser_of(command: LazyCommand) -> click.Command:
    """The parser of one command: its module is imported now."""
    from pilotage.cli import parser

    return parser.parser_of(getattr(importlib.import_module(command.module), command.attribute))


def call(path: str, command: LazyCommand, arguments: Sequence[str]) -> int:
    """Run one command. `path`: the words that people type for it, for its usage."""
    parser = parser_of(command)
    import click

    try:
        with parser.make_context(path, list(arguments)) as context:
            result = parser.invoke(context)
    except click.exceptions.Exit as leaving:  # after --help
        return leaving.exit_code
    return result if isinstance(result, int) else OK


class Failure(NamedTuple):
    """The end of a command that did not do its work."""

    exit_code: int
    code: str
    """Stable: that of the class of PilotageError, or one of this module."""
    message: str
    hint: str = ""


INTERRUPTION = Failure(INTERRUPTED, "interrupted", "interrupted")


def _failure_of(error: Exception, debug: bool) -> Failure:
    if isinstance(error, PilotageError):
        place = error.place if isinstance(error, InvalidInput) else ""
        exit_code = next((code for kind, code in BY_ERROR if isinstance(error, kind)), INTERNAL)
        return Failure(exit_code, error.code, place + error.message, error.hint)
    if hasattr(error, "format_message"):  # an error of usage of click, which may not be imported
        path = getattr(getattr(error, "ctx", None), "command_path", "pilotage")
        return Failure(USAGE, InvalidInput.code, _usage_error(error.format_message()), f"see `{path} --help`")
    kind = type(error).__name__
    hint = (
        "the traceback is above"
        if debug
        else "run again with --debug for the traceback, and please report it"
    )
    return Failure(INTERNAL, "internal", f"internal error: {kind}: {error}", hint)


def _usage_error(text: str) -> str:
    """The message of click in words for people who do not program."""
    import re

    return re.sub(r"'[^']*' is not a valid integer.*", "it must be a whole number", text).rstrip(".")


def _report(failure: Failure) -> None:
    colour = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    head = "\033[1;31mpilotage:\033[0m" if colour else "pilotage:"
    lines = [f"{head} {printable_lines(failure.message)}"]
    if failure.hint:
        lines.append(f"  hint: {printable_lines(failure.hint)}")
    _print_to_stderr("\n".join(lines))


def _report_as_json(failure: Failure) -> None:
    """One line on standard error: standard output may have a part of its document already."""
    import json

    _print_to_stderr(json.dumps({"error": failure._asdict()}))


def _print_to_stderr(text: str) -> None:
    # If nobody reads stderr, the exit code still tells.
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr)
