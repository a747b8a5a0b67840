"""The client against a server that fails in the ways servers fail."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pilotage.client import Client, Selection, TokenFile, transport
from pilotage.client.selections import parse_ids
from pilotage.core import errors
from tests.unit.client.fake_server import State, job, token


def test_jobs_come_page_by_page(client: Client, state: State) -> None:
    state.page = 3
    state.jobs = {number: job(number) for number in range(1, 9)}
    assert [one.id for one in client.jobs()] == list(range(1, 9))
    assert len(state.paths("GET")) == 3


def test_many_ids_are_asked_in_pieces(client: Client, state: State) -> None:
    state.jobs = {number: job(number) for number in range(1, 501)}
    assert client.counts(range(1, 501)).total == 500
    assert len(state.requests) == 3
    assert len(list(client.jobs(range(1, 501)))) == 500


def test_an_answer_that_was_lost_does_not_double_a_submission(client: Client, state: State) -> None:
    state.failures = ["hang up after", "hang up"]
    answer = client.submit({"executable": "true"}, values=[1, 2, 3])
    assert (answer.count, len(state.jobs)) == (3, 3)
    assert len(state.paths("POST")) == 3


def test_an_unrepeatable_call_is_sent_once(client: Client, state: State) -> None:
    state.failures = ["hang up"]
    with pytest.raises(errors.Unreachable):
        client.create_token("bob")
    assert len(state.requests) == 1


def test_come_later_is_obeyed(client: Client, state: State) -> None:
    busy = {"code": "overloaded", "message": "full", "retry_after": 0.2}
    state.failures = [(429, busy), (503, b"<html>")]
    start = time.monotonic()
    assert client.whoami().user == "ada"
    assert time.monotonic() - start >= 0.3


def test_patience_ends(fake: tuple[str, State]) -> None:
    fake[1].failures = [(429, {"code": "overloaded", "message": "full", "retry_after": 60.0})]
    with Client(fake[0], "t", patience=0.1) as client, pytest.raises(errors.Overloaded) as caught:
        client.whoami()
    assert caught.value.retry_after == 60.0


class Told(Exception):
    """Raised by the callback, so that the test does not wait."""


def test_a_long_wait_is_told_at_once(fake: tuple[str, State]) -> None:
    """Before the first pause: a person sees what the command waits for, such as a full disk."""
    fake[1].failures = [(507, {"code": "disk-full", "message": "the disk is full", "retry_after": 60.0})]

    def tell(error: errors.PilotageError) -> None:
        raise Told(error.message)

    with (
        Client(fake[0], "t", patience=600.0, on_outage=tell) as client,
        pytest.raises(Told, match="the disk is full"),
    ):
        client.whoami()


def test_a_wait_is_told_again_each_minute(fake: tuple[str, State], monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk may last for the whole patience: a command is not silent meanwhile."""
    full = (507, {"code": "disk-full", "message": "the disk is full", "retry_after": 10.0})
    fake[1].failures = [full] * 60
    now, told = [0.0], []

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(transport, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    with (
        Client(fake[0], "t", patience=300.0, on_outage=lambda _: told.append(now[0])) as client,
        pytest.raises(errors.DiskFull),
    ):
        client.whoami()
    assert told[0] == 0.0
    assert len(told) in (4, 5)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((409, {"code": "illegal-move", "message": "m"}), errors.IllegalMove),
        ((400, {"code": "too-large", "message": "m"}), errors.TooLarge),
        ((403, {"code": "forbidden", "message": "m", "hint": "h"}), errors.Forbidden),
        ((401, b"who?"), errors.NotAuthenticated),
        ((404, {"code": "of a later version", "message": "m"}), errors.NotFound),
        ((500, b"oh"), errors.PilotageError),
        ((200, b"<html>a portal</html>"), errors.PilotageError),
        ((200, {"user": 3}), errors.PilotageError),
    ],
)
def test_errors_by_code(client: Client, state: State, answer: object, kind: type[Exception]) -> None:
    state.failures = [answer]
    with pytest.raises(kind) as caught:
        client.whoami()
    assert type(caught.value) is kind


def test_an_absent_server_is_unreachable() -> None:
    with (
        Client("http://127.0.0.1:1", "t", patience=0.2) as client,
        pytest.raises(errors.Unreachable, match="answer"),
    ):
        client.whoami()


def test_no_address() -> None:
    with pytest.raises(errors.InvalidInput):
        Client("localhost:8080", "t")


def test_wait_and_its_progress(client: Client, state: State) -> None:
    state.jobs = {1: job(1, "Running"), 2: job(2)}
    seen = []

    def progress(counts: object) -> None:
        seen.append(counts)
        state.jobs[1]["state"] = "Failed"

    counts = client.wait([1, 2], progress=progress)
    assert counts.states == {"Failed": 1, "Done": 1}
    assert len(seen) == 2


def test_wait_gives_up_and_knows_nothing(client: Client, state: State) -> None:
    state.jobs = {1: job(1, "Running")}
    assert client.wait(1, timeout=0.1).final == 0
    with pytest.raises(errors.NotFound):
        client.wait(Selection(submission=77))


def test_logs_in_pieces(client: Client, state: State) -> None:
    state.jobs, state.logs = {1: job(1)}, {1: b"hello, world\n"}
    assert b"".join(piece.data for piece in client.logs(1, follow=True)) == b"hello, world\n"
    assert b"".join(piece.data for piece in client.logs(1)) == b"hello, world\n"
    state.jobs[1]["state"] = "Running"
    assert [piece.data for piece in client.logs(1)] == [b"hello"]


# --- tokens


def test_a_token_near_its_end_is_renewed_in_place(fake: tuple[str, State], tmp_path: Path) -> None:
    now, file = time.time(), tmp_path / "token"
    file.write_text(token(now - 3600, now + 600) + "\n")
    fake[1].refreshed = fresh = token(now, now + 3600)
    with Client(fake[0], TokenFile(file)) as client:
        client.whoami()
        client.whoami()
    assert fake[1].paths("POST") == ["/v1/tokens/refresh"]
    assert fake[1].tokens[-1] == f"Bearer {fresh}"
    assert file.read_text().strip() == fresh
    assert file.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["token"]


def test_a_refused_renewal_leaves_the_old_token(fake: tuple[str, State], tmp_path: Path) -> None:
    now, file = time.time(), tmp_path / "token"
    file.write_text(token(now - 3600, now + 600))
    fake[1].failures = [(403, {"code": "forbidden", "message": "no"})]
    with Client(fake[0], TokenFile(file)) as client:
        assert client.whoami().user == "ada"


def test_a_token_that_is_over(fake: tuple[str, State], tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token(1.0, 2.0))
    fake[1].failures = [(401, {"code": "not-authenticated", "message": "this token has expired"})]
    with (
        Client(fake[0], TokenFile(file)) as client,
        pytest.raises(errors.NotAuthenticated, match="expired") as error,
    ):
        client.whoami()
    assert "pilotage token create ada --group lab --out FILE" in error.value.hint
    assert str(file) in error.value.hint
    assert fake[1].requests == [("GET", "/v1/whoami")], "the server judges, and no renewal is tried"


def test_a_token_is_renewed_when_it_is_an_hour_old(fake: tuple[str, State], tmp_path: Path) -> None:
    now, file = time.time(), tmp_path / "token"
    for age, renewals in ((3000, 0), (4000, 1)):
        file.write_text(token(now - age, now - age + 30 * 86400))
        fake[1].refreshed = token(now, now + 30 * 86400)
        with Client(fake[0], TokenFile(file)) as client:
            client.whoami()
        assert fake[1].paths("POST") == ["/v1/tokens/refresh"] * renewals


def test_a_renewal_by_another_process_is_taken_up(fake: tuple[str, State], tmp_path: Path) -> None:
    now, file = time.time(), tmp_path / "token"
    file.write_text(token(now, now + 600))
    with Client(fake[0], TokenFile(file)) as client:
        client.whoami()
        fresh = token(now + 1, now + 700)
        file.write_text(fresh)
        fake[1].failures = [(401, {"code": "not-authenticated", "message": "no"})]
        assert client.whoami().user == "ada"
    assert fake[1].tokens[-1] == f"Bearer {fresh}"


@pytest.mark.parametrize("content", ["", "two words", "\x00\xff"])
def test_a_file_that_holds_no_token(fake: tuple[str, State], tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content, encoding="latin-1")
    with Client(fake[0], TokenFile(file)) as client, pytest.raises(errors.NotAuthenticated):
        client.whoami()


# --- ids


@pytest.mark.parametrize(
    ("words", "ids"),
    [(["12"], [12]), (["12-15"], [12, 13, 14, 15]), (["3,1", "1-2"], [3, 1, 2]), (["7-7,"], [7]), ([], [])],
)
def test_ids(words: list[str], ids: list[int]) -> None:
    assert parse_ids(words) == ids


@pytest.mark.parametrize(
    "word", ["x", "-3", "3-", "5-2", "0", "1-2-3", "²", "1-999999999", "99999999999999999999"]
)
def test_ids_that_are_none(word: str) -> None:
    with pytest.raises(errors.InvalidInput):
        parse_ids([word])


def test_a_submission_among_ids_is_told_the_option_for_it() -> None:
    with pytest.raises(errors.InvalidInput, match="'s:12' is not a job id") as refused:
        parse_ids(["s:12"])
    assert refused.value.hint == "where jobs are named by ids, `-s 12` names a submission"
