"""Following a log: pauses by the change feed, and no request while nothing can be written."""

from __future__ import annotations

from pilotage.client.polling import SILENT_STATES, LogPiece, follow_log
from pilotage.wire.limits import LONGEST_POLL


class Job:
    """A job that takes a step at each pause."""

    def __init__(self, *steps: tuple[str, bytes]) -> None:
        self._steps = steps
        self._step = 0
        self.pauses: list[tuple[str, float]] = []

    @property
    def state(self) -> str:
        return self._steps[self._step][0]

    def ask(self, offset: int) -> LogPiece:
        written = b"".join(data for _, data in self._steps[: self._step + 1])
        return LogPiece(offset, written[offset:], self.state)

    def wait(self, seconds: float) -> None:
        self.pauses.append((self.state, seconds))
        self._step += 1

    def follow(self) -> bytes:
        pieces = follow_log(self.ask, wait=self.wait, silent=SILENT_STATES)
        return b"".join(piece.data for piece in pieces)


def test_a_log_is_followed_from_the_waiting_job_to_its_end() -> None:
    job = Job(
        ("Waiting", b""),
        ("Matched", b""),
        ("Running", b"a"),
        ("Running", b""),
        ("Running", b"b"),
        ("Done", b"c"),
    )
    assert job.follow() == b"abc"
    assert [state for state, _ in job.pauses] == ["Waiting", "Matched", "Running", "Running", "Running"]


def test_a_waiting_job_is_asked_again_only_when_it_has_changed() -> None:
    job = Job(("Waiting", b""), ("Running", b""), ("Rescheduled", b""), ("Failed", b""))
    assert job.follow() == b""
    long = [state for state, seconds in job.pauses if seconds == LONGEST_POLL]
    assert long == ["Waiting", "Rescheduled"]
    assert all(seconds < 5 for state, seconds in job.pauses if state == "Running")


def test_an_ended_job_is_read_without_a_pause() -> None:
    job = Job(("Done", b"all"))
    assert job.follow() == b"all"
    assert not job.pauses
