"""Twenty minutes of a server in virtual time are recorded and replayed: all duties run, people submit and kill."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from signal import SIGTERM
from typing import Any

import msgspec
import pytest

from pilotage import __version__
from pilotage.server.private_files import write_private
from pilotage.server.process.home import Home
from pilotage.server.process.recorded_rim import RecordedRim, stream, uuid_of
from pilotage.server.process.recorded_run import replay_key
from pilotage.server.process.run import run_server
from pilotage.server.recording.lines import (
    FORMAT,
    Answered,
    Input,
    Inputs,
    ListeningEnded,
    ReceivedMessage,
    ReceivedSignal,
    RecordBegin,
    ServerAt,
    read_record,
)
from pilotage.server.recording.loop import DecisionLoop
from pilotage.server.recording.messages import plain_routes_inline
from pilotage.server.recording.recorder import Recorder, RecordFile
from pilotage.server.recording.redaction import Redaction, SeededSecrets
from pilotage.server.tokens import Issuer
from pilotage.services.jobs import actions, audited_actions
from pilotage.store.tables.digests import digest_of_tables
from pilotage.twin.replay import TapedFront, replay, settings_of
from pilotage.wire.pilot import Node

pytestmark = pytest.mark.slow

BEGIN, MINUTES = 1_700_000_000.0, 20
POLICY = """
[groups.home]
share = 2
properties = ["NORMAL_USER", "ADMINISTRATOR"]
[groups.others]
[users.ada]
groups = ["home"]
[users.bob]
groups = ["others"]
[sites.here]
"""


class ScriptedRecorder(Recorder):
    """Records inputs that come at given instants. No second is waited for."""

    def __init__(self, file: RecordFile, script: Sequence[tuple[float, Input]]) -> None:
        super().__init__(file, Redaction(b""), lambda: 0.0)
        self._redaction.resign = lambda token: token
        self._script = list(script)

    def next_inputs(self, now: float, due: float | None) -> tuple[float, Sequence[Callable[[], object]]]:
        if self._script and (due is None or self._script[0][0] < due):
            at, given = self._script.pop(0)
            at = max(now, at)
            self._file.write(Inputs(at, self.changes(), [self._shown(given)]))
            return at, [self._hand_in(given)]
        assert due is not None
        return due, ()

    def on_signal(self, signal: int, callback: Callable[[], object]) -> None:
        self._on_signal[signal] = callback


def script(header: RecordBegin) -> Iterator[tuple[float, Input]]:
    """Submissions, kills, a policy, questions: one every four seconds, then the end."""
    issuer = Issuer(replay_key(header.seed), uuid_of(header.seed))
    tokens = {
        user: issuer.issue(user, group, BEGIN)[0] for user, group in (("ada", "home"), ("bob", "others"))
    }
    draw, number = stream("script", "calls"), 0
    for number in range(1, MINUTES * 15):
        user = draw.choice(("ada", "bob"))
        job = draw.randrange(1, number + 2)
        calls: list[tuple[str, str, object]] = [
            (
                "POST",
                "/v1/submissions",
                {"description": {"executable": "/bin/true", "user_priority": draw.randrange(9)}},
            ),
            ("POST", "/v1/jobs/kill", {"selection": {"ids": [job]}}),
            ("GET", "/v1/jobs", None),
            ("GET", f"/v1/jobs/{job}/why", None),
            ("GET", "/v1/queues", None),
            ("PUT", "/v1/policy", {"text": POLICY.replace("share = 2", f"share = {number}")}),
        ]
        method, path, body = draw.choices(calls, (8, 2, 2, 2, 1, 1))[0]
        headers = [
            (b"authorization", b"Bearer " + tokens[user].encode()),
            (b"content-type", b"application/json"),
        ]
        sent = b"" if body is None else msgspec.json.encode(body)
        headers.append((b"content-length", b"%d" % len(sent)))
        yield (
            BEGIN + 4 * number,
            ReceivedMessage(number, method, path, path.encode(), b"", headers, None, sent),
        )
    end = BEGIN + 60 * MINUTES
    yield end, ReceivedSignal(SIGTERM)
    yield end + 1, ListeningEnded()


def record(folder: Path) -> Path:
    node = msgspec.to_builtins(Node("here", "x86_64", 2, 4000))
    server = ServerAt("http://here", "here", "ada", "/storage", node, "", POLICY, 0, "sqlite")
    header = RecordBegin(FORMAT, __version__, BEGIN, "some seed", server, "")
    home, path = Home.at(folder / "home"), folder / "run.record"
    home.make()
    write_private(home.folder / "secrets" / "signing.key", replay_key(header.seed))
    file = RecordFile(path, 100_000_000)
    file.write(header)
    recorder = ScriptedRecorder(file, list(script(header)))
    with (
        closing(home.database.open(home.folder / "backups", "test")) as connection,
        closing(DecisionLoop(BEGIN, recorder)) as loop,
        plain_routes_inline(),
    ):
        secrets = SeededSecrets(stream(header.seed, "secrets"))
        rim = RecordedRim(header, recorder, loop, TapedFront(server.url, recorder), secrets)
        loop.run_until_complete(run_server(settings_of(header, home), connection, rim))
        recorder.ended(lambda: digest_of_tables(connection))
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("minutes"))


def test_twenty_minutes_are_replayed_without_a_difference(path: Path) -> None:
    result = replay(path)
    assert result.difference == ""
    assert result.ended
    assert result.answers == result.messages == MINUTES * 15 - 1
    assert result.until - result.begin >= 60 * MINUTES
    _, lines = read_record(path)
    statuses = Counter(line.status for line in lines if isinstance(line, Answered))
    assert statuses[200] + statuses[201] > 150, "most of the script is accepted"


def test_a_rule_that_changes_in_the_middle_is_found_there(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the tenth minute on, kills leave the last job of a selection alone."""
    changed = BEGIN + 600

    def act(pool: Any, tx: Any, verb: str, ids: list[int], *, now: float, **more: Any) -> Any:
        return actions.act(pool, tx, verb, ids[:-1] if now >= changed else ids, now=now, **more)

    monkeypatch.setattr(audited_actions, "act", act)
    result = replay(path)
    found = re.match(r"at (\d+\.\d+) s: message \d+ \(POST /v1/jobs/kill\)", result.difference)
    assert found is not None, result
    assert 600 <= float(found[1]) < 1000
