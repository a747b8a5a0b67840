"""`--dependency`: the conditions of Slurm become conditions of Pilotage's chains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pilotage.core.errors import InvalidInput

_FIELDS: Final = {
    "afterany": "after",
    "afterok": "after_ok",
    "afternotok": "after_fail",
    "aftercorr": "after_each",
}
_REFUSED: Final = {
    "after": "a job cannot wait for the start of another one; use afterany",
    "afterburstbuffer": "there are no burst buffers here",
    "expand": "a job cannot be made larger",
}


def parse_dependency(
    text: str, parents: Callable[[str], str], namesakes: Callable[[], list[str]]
) -> dict[str, list[str]]:
    """The fields of the description for `afterok:1:2,afterany:3`. `parents` turns a number into `12` or `s:4`.

    As in Slurm, an empty text is no condition, and a number without a kind means `afterany`.
    `namesakes`: earlier jobs of the same name and user that have not ended, for `singleton`.
    """
    if "?" in text:
        raise InvalidInput(
            f"--dependency {text}: `?` is refused: a job here waits for all of its conditions",
            hint="separate them by commas",
        )
    fields: dict[str, list[str]] = {}
    for part in text.split(",") if text.strip() else ():
        kind, *numbers = part.strip().split(":")
        if kind[:1].isdigit():
            kind, numbers = "afterany", [kind, *numbers]
        name = kind.lower()
        if name == "singleton" and not numbers:
            fields.setdefault(_FIELDS["afterany"], []).extend(namesakes())
            continue
        if name in _REFUSED:
            raise InvalidInput(f"--dependency {text}: {name} is refused: {_REFUSED[name]}")
        if name not in _FIELDS or not numbers or not all(numbers):
            raise InvalidInput(
                f"--dependency {text}: {part or 'nothing'} is not understood",
                hint="afterok:12, afterany:12:13, afternotok:12_3 or aftercorr:12",
            )
        fields.setdefault(_FIELDS[name], []).extend(map(parents, numbers))
    return fields
