"""The order by which a pilot starts a batch script, in the arguments of its job."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pilotage.cli.export_option import OWN, parse_export
from pilotage.core.errors import InvalidInput
from pilotage.wire.batch_script import PROGRAM, ScriptOrder, in_pieces, packed, unpacked

_MOST: Final = 900_000
"""Characters of an order: a description has a limit."""
WARNING_VARIABLE: Final = "PILOTAGE_SLURM_SIGNAL"
"""The signal that srun gives its tasks when the pilot warns the job."""
STEPS_SIGNAL: Final = "URG"
"""The warning for the steps of a job: all programs but srun ignore it."""
_OF_JOB: Final = ("SLURM_", "SLURMD_", "SBATCH_")
"""Variables of a job from which another one is submitted: they are about that job."""
_WAY: Final = {"PILOTAGE_HOME": True, "PILOTAGE_SERVER": False, "PILOTAGE_TOKEN_FILE": True}
"""Variables by which commands in a job find the server, and whether each is a path."""


def order_arguments(order: ScriptOrder) -> list[str]:
    """The arguments of its job. Raises InvalidInput if they are too long."""
    text = packed(order)
    if len(text) > _MOST:
        variables = sum(len(name) + len(value) for name, value in order.variables.items())
        raise InvalidInput(
            f"the batch script ({len(order.script):,} characters), its {len(order.arguments):,} arguments"
            f" ({sum(map(len, order.arguments)):,}) and {len(order.variables):,} variables ({variables:,})"
            f" have {len(text):,} characters after compression; the limit is {_MOST:,}",
            hint="--export=NONE sends no variables, and a script can read a file instead of arguments",
        )
    return in_pieces(text)


def packed_script(executable: str, arguments: Sequence[str]) -> bytes | None:
    """The batch script of a job; None: it has none."""
    if executable != PROGRAM:
        return None
    script = unpacked(arguments).script
    return script.encode("utf-8", "surrogateescape") if script else None


def as_utf8(text: str) -> str:
    """A text of the surroundings with its bytes read as UTF-8, in each locale."""
    return os.fsencode(text).decode("utf-8", "surrogateescape")


def is_utf8(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def sent_variables(word: str, environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """(variables of `--export WORD`, names that are not set here). With ALL come names of any form, as in Slurm.

    The way to the server always comes along: commands in the job use it.
    """
    variables, unset = parse_export(word, environment)
    if any(part.strip().upper() == "ALL" for part in word.split(",")):
        further = {name: value for name, value in environment.items() if not name.startswith(OWN)}
        variables = further | variables
    kept = {
        name: value for name, value in variables.items() if not name.startswith(_OF_JOB) and name != "TMPDIR"
    }
    way = {
        name: str(Path(value).absolute()) if is_path else value
        for name, is_path in _WAY.items()
        if (value := environment.get(name))
    }
    return {as_utf8(name): as_utf8(value) for name, value in (kept | way).items()}, unset
