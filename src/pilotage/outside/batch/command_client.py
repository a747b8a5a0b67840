"""Questions to a batch system by its client commands: one time limit, and one error for every missing answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pilotage.core.errors import Unreachable
from pilotage.outside.batch.pilot_logs import read_log_tail, tail_command
from pilotage.outside.batch.runner import MISSING, CommandResult, Runner
from pilotage.outside.batch.submission import MOST_CHARACTERS, BatchListing, ListedTask, in_short


class UnreadableOutput(Unreachable):
    """A command printed something unexpected: its answer counts as unknown."""

    def __init__(self, reason: str) -> None:
        # The hint stands in brackets behind it.
        super().__init__(in_short(reason, MOST_CHARACTERS - len(_OTHER_VERSION) - 3), hint=_OTHER_VERSION)


_OTHER_VERSION = (
    "another program or an unknown version may have answered: the how-to pages name the versions tried"
)


def describe_end(command: str, status: int | None) -> str:
    """The end of a command that printed no error. `status`: as of `CommandResult`."""
    if status is None:
        return f"{command} did not answer in time"
    if status < 0:
        return f"{command} was killed by signal {-status}"
    return f"{command} ended with status {status} and said nothing"


@dataclass(frozen=True, slots=True)
class CommandClient:
    """Runs the client commands of one batch system, and tells when its controller was started again."""

    runner: Runner
    system: str
    """The name of the batch system, for messages."""
    controller: str
    """The program of the batch system that answers the commands, such as Slurm's controller."""
    hint: str
    """How to find out whether the controller answers."""
    timeout: float
    """Seconds for one command."""
    advice: Sequence[tuple[Sequence[str], str]] = ()
    """Words of errors in small letters, with the next step in place of `hint`. The first that fit count."""

    def run(self, command: list[str], text: str = "") -> CommandResult:
        """Run a command with `text` as its standard input. Raises nothing."""
        return self.runner.run(command, text=text, timeout=self.timeout)

    def check_output(self, command: list[str]) -> str:
        """Run a command; its standard output. `Unreachable` if it fails."""
        result = self.run(command)
        if result.succeeded:
            return result.output
        raise self.unreachable(command[0], result)

    def read_log_tail(self, folder: str, stamp: str, index: int, most: int) -> str:
        """The last `most` characters of a pilot's output, where the commands run; "" if none can be read."""
        pilot = f"{stamp}/{index}"
        if not self.runner.is_remote:
            return read_log_tail(folder, pilot, most)
        command = tail_command(folder, pilot, most)
        return self.run(command).output[-most:] if command else ""

    def unreachable(self, command: str, result: CommandResult) -> Unreachable:
        """The error for a command that gave no answer."""
        if result.unreached:
            return Unreachable(result.unreached)
        if result.status is None:
            return Unreachable(f"{command} did not answer within {self.timeout:.0f} s", hint=self.hint)
        if result.status == MISSING:
            hint = (
                f"install {self.system}'s client commands on the server's machine, on the PATH of the server"
            )
            return Unreachable(f"{command} is not installed here", hint=hint)
        # Without an error the output may be a whole listing, which tells nobody why.
        words = result.errors.strip() or _first_error(result.output)
        reason = f"{command}: {words}" if words else describe_end(command, result.status)
        return Unreachable(in_short(reason), hint=self._next_step(result))

    def _next_step(self, result: CommandResult) -> str:
        said = (result.errors + result.output).lower()
        fitting = (step for words, step in self.advice if any(word in said for word in words))
        return next(fitting, self.hint)

    def list_in_one_epoch(
        self, read_epoch: Callable[[], str], list_tasks: Callable[[], tuple[ListedTask, ...]]
    ) -> BatchListing:
        """The listing is complete only if the controller ran throughout."""
        try:
            before = read_epoch()
            tasks = list_tasks()
            if read_epoch() != before:
                return BatchListing(failure=f"{self.controller} was started again during the listing")
        except Unreachable as error:
            return BatchListing(failure=str(error))
        return BatchListing(before, tasks)

    def check_epoch(self, epoch: str, now: str) -> None:
        """`Unreachable` if ids of the epoch `epoch` may belong to other jobs in the epoch `now`."""
        if now != epoch:
            raise Unreachable(f"{self.controller} was started again: its ids may belong to other jobs now")


def _first_error(output: str) -> str:
    """The first line of an output that speaks of an error; some commands print it there."""
    return next((line for line in output.splitlines() if "error" in line.lower() or "denied" in line), "")
