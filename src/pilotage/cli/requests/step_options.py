"""Options that change the splitting and the resources of a request's steps."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.description_options import name_value_pairs, whole_seconds
from pilotage.cli.option_groups import OptionGroup
from pilotage.cli.parser import CommandOption

if TYPE_CHECKING:
    from pilotage.wire.requests import StepChange


@dataclass(frozen=True, kw_only=True)
class StepOptions(OptionGroup):
    """Options for another splitting and other resources of steps."""

    step: Annotated[str, CommandOption("Change splitting and resources of this step only", "NAME")] = ""
    processors: Annotated[int | None, CommandOption("Processors of each job", "NUMBER")] = None
    memory: Annotated[str, CommandOption("Memory of each job: 2GB", "SIZE")] = ""
    disk: Annotated[str, CommandOption("Free disk that each job needs: 20GB", "SIZE")] = ""
    wall_time: Annotated[str, CommandOption("Maximum wall time of each job: 90s, 2h", "TIME")] = ""
    splitting: Annotated[
        list[str] | None, CommandOption("Another parameter of the splitting", "NAME=VALUE")
    ] = None

    def change(self) -> StepChange:
        """The options as a request to the server. Raises InvalidInput for texts that cannot be read."""
        from pilotage.wire.requests import StepChange

        values = {
            "processors": self.processors,
            "memory": self.memory or None,
            "disk": self.disk or None,
            "wall_time": whole_seconds(self.wall_time),
        }
        pairs = name_value_pairs(self.splitting or (), "--splitting", "NAME=VALUE, such as files_per_job=5")
        return StepChange(
            self.step,
            {name: value for name, value in values.items() if value is not None},
            {name: _number(value) for name, value in pairs.items()},
        )


def _number(text: str) -> int | float | str:
    """The number that a text is, or else the text."""
    with contextlib.suppress(ValueError):
        return int(text)
    with contextlib.suppress(ValueError):
        return float(text)
    return text
