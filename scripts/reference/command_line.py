"""docs/reference/cli.md, made of the command tree itself."""

from __future__ import annotations

import inspect
from typing import Any

from pilotage.cli.commands import LazyCommand
from pilotage.cli.root import EXIT_CODES, Root, build, parser_of
from pilotage.cli.session import SHARED

HEAD = """# The command line

<!-- Made by scripts/write-docs from the commands; a test compares. -->

`pilotage COMMAND --help` tells the same. Options may stand before or after the arguments; `--home`, `--server`,
`--token-file` and `--json` also before the command. On a terminal there are tables, colours and progress bars; into
a pipe go plain lines, cells separated by tabs below one line of column names. With `--json` standard output has one
JSON document and nothing else; notes go to standard error. An error is then one line of JSON there too:
`{"error": {"exit_code": 4, "code": "not-found", "message": "there is no job 7", "hint": "..."}}`.

Job ids are written 12, 12-40 or 12,15. Durations are 90s, 15m, 1h30m, 3d; as in Slurm: 1:30 (90 s), 1:30:00, 1-12.

Every command that speaks to the server has these options:

| option | variable | meaning |
|---|---|---|
| `--home DIR` | `PILOTAGE_HOME` | the server's home, default `~/.pilotage`; its `server.json` says where it listens |
| `--server URL` | `PILOTAGE_SERVER` | the server's address, instead of the one in `server.json` |
| `--token-file FILE` | `PILOTAGE_TOKEN_FILE` | your token; default `token` in the home folder; renewed in place |
| `--json` | | print one JSON document |
| `--debug` | `PILOTAGE_DEBUG` | show Python's trace of an error |

## Exit codes

| code | meaning |
|---|---|
"""


def markdown(root: Root | None = None) -> str:
    """The whole page, for the commands of `root`. Without `root`: for the commands of this package."""
    tree = root or build()
    parts = [HEAD, *(f"| {code} | {text} |\n" for code, text in EXIT_CODES), "\n## Commands\n\n"]
    parts += [
        f"- [`{name}`](#{name.replace(' ', '-')}): {command.help}\n"
        for name, command in tree.commands.items()
    ]
    parts += [_section(name, command) for name, command in tree.commands.items()]
    return "".join(parts)


def _section(name: str, command: LazyCommand) -> str:
    parsed: Any = parser_of(command)
    lines = [f"\n### {name}\n", f"\n{inspect.cleandoc(parsed.help or command.help)}\n"]
    arguments = [param for param in parsed.params if param.param_type_name == "argument"]
    options = _own_options(parsed.params)
    usage = " ".join(["pilotage", name, "[OPTIONS]", *(param.metavar for param in arguments)])
    lines.append(f"\n    {usage}\n")
    if options:
        lines.append("\n| option | meaning |\n|---|---|\n")
    lines += [f"| `{_spelling(param)}` | {_meaning(param)} |\n" for param in options]
    return "".join(lines)


def _own_options(params: list[Any]) -> list[Any]:
    """The options of one command. Options shared by all commands stand once at the top of the page."""
    shared = {name for name, _, _ in SHARED}
    left_out = shared if shared <= {param.name for param in params} else set()
    options = (param for param in params if param.param_type_name == "option" and not param.hidden)
    return [param for param in options if param.name not in left_out | {"help"}]


def _spelling(param: Any) -> str:
    names = ", ".join(param.opts)
    if getattr(param, "is_flag", False):
        return names
    kind = param.metavar or getattr(getattr(param, "type", None), "name", "") or "VALUE"
    return f"{names} {kind.upper() if param.metavar is None else kind}".replace("|", "\\|")


def _meaning(param: Any) -> str:
    text = str(param.help or "").rstrip(".").replace("|", "\\|")
    default = param.default
    if isinstance(default, (str, int, float)) and not isinstance(default, bool) and default != "":
        text += f"; default {default}"
    variables = [param.envvar] if isinstance(param.envvar, str) else param.envvar or []
    return text + "".join(f" (`{name}`)" for name in variables)
