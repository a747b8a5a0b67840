"""`pilotage completion`: scripts for shells, and the words that they ask for."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Any, Final

from pilotage.cli.parser import CommandArgument

PATIENCE: Final = 2.0
"""Seconds that a shell waits for the words."""

SCRIPTS: Final = {
    "bash": """\
# pilotage completion bash: load it by  source <(pilotage completion bash)
_pilotage() {
    local word
    COMPREPLY=()
    while IFS= read -r word; do
        COMPREPLY+=("$word")
    done < <(pilotage completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _pilotage pilotage
""",
    "zsh": """\
#compdef pilotage
# pilotage completion zsh: load it by  source <(pilotage completion zsh)  after compinit
_pilotage() {
    local -a found
    found=(${(f)"$(pilotage completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( ${#found} )); then
        compadd -- "${found[@]}"
    else
        _files
    fi
}
compdef _pilotage pilotage
""",
    "fish": """\
# pilotage completion fish: load it by  pilotage completion fish | source
function __pilotage_words
    set -l words (commandline -opc) (commandline -ct)
    pilotage completion words -- $words[2..-1] 2>/dev/null
end
complete -c pilotage -a '(__pilotage_words)'
""",
}


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    WORDS = "words"


def completion(
    shell: Annotated[Shell, CommandArgument("Your shell; `words` is for its script", "bash|zsh|fish")],
    words: Annotated[
        list[str] | None,
        CommandArgument(
            "After `words --`: the words so far, the last one begun", "[WORDS]", may_be_empty=True
        ),
    ] = None,
) -> None:
    """Print a script that completes commands, options, ids, CEs and sites in your shell.

    source <(pilotage completion bash)    for bash and zsh
    pilotage completion fish | source     for fish
    """
    if shell is not Shell.WORDS:
        print(SCRIPTS[shell], end="")
        return
    for word in _offered(words or [""]):
        print(word)


def _offered(words: list[str]) -> list[str]:
    """The words, or none after any trouble: a shell must not show errors while somebody types."""
    from pilotage.cli.completion import completions
    from pilotage.main.command_line import all_commands

    with contextlib.suppress(Exception), _time_limit():
        return completions(all_commands(), words, _ask)
    return []


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    """Raise TimeoutError after PATIENCE, wherever the program waits."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _ask(kind: str, begun: str) -> Iterable[object]:
    """The names that the server of the environment knows."""
    from itertools import islice

    from pilotage.cli.completion import KINDS, MOST
    from pilotage.cli.session import session_of_environment
    from pilotage.client import Client

    session = session_of_environment()
    with Client.connect(
        server=session.server, token_file=session.token_file, patience=0.0, connect_patience=0.0
    ) as client:
        return list(islice(KINDS[kind](client, begun), MOST))
