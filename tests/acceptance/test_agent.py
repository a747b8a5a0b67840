"""Agents as processes: the one that `up` starts, and ones elsewhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.https_site import https_site
from tests.deadlines import PATIENCE
from tests.faults.request_tables import add_request, all_split, audited, read
from tests.instance import Instance, alive, children, running, until


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with running(tmp_path, processors=64) as made:
        yield made


def embedded_agent(instance: Instance) -> int | None:
    """The process of the agent that the server has started."""
    assert instance.process is not None
    for pid in children(instance.process.pid):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") if alive(pid) else []
        if b"--embedded" in words:
            return pid
    return None


def start_agent(
    instance: Instance, *options: str, token: str = "", **variables: str
) -> subprocess.Popen[str]:
    """An agent elsewhere, of team `far`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PILOTAGE_")}
    url = json.loads((instance.home / "server.json").read_text())["url"]
    return subprocess.Popen(
        [sys.executable, "-m", "pilotage.main", "agent", "--team", "far", "--server", url, *options],
        env={
            **environment,
            "PILOTAGE_TOKEN": token or (instance.home / "token").read_text().strip(),
            **variables,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def joined(instance: Instance, count: int) -> None:
    until(
        lambda: (
            read(
                instance,
                lambda connection: connection.execute(
                    "SELECT count(*) FROM agents WHERE ended IS NULL AND draining = 0"
                ).fetchone()[0],
            )
            == count
        ),
        what=f"{count} agents",
    )


def test_up_runs_an_agent_when_a_request_needs_it_and_ends_it_with_itself(instance: Instance) -> None:
    assert embedded_agent(instance) is None
    request = add_request(instance, 3, 5)
    all_split(instance, request, 3)
    audited(instance, request, jobs=9)

    first = embedded_agent(instance)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    # A request that ends while the agent is dead needs no new one.
    second = add_request(instance, 2, 4)
    again = until(lambda: (pid := embedded_agent(instance)) != first and pid, what="a new agent")
    all_split(instance, second, 2)
    audited(instance, second, jobs=4)
    assert "ended with code -9" in instance.log()

    instance.kill_server()
    until(lambda: not alive(again), what="the end of the agent of a killed server")
    instance.start()
    third = add_request(instance, 2, 4)
    all_split(instance, third, 2)
    audited(instance, third, jobs=4)
    last = embedded_agent(instance)
    assert last is not None
    instance.stop_server()
    assert not alive(last)
    assert json.loads((instance.home / "agent.log").read_text().splitlines()[-1])["event"] == "left"


def test_a_policy_without_a_team_starts_no_agent_and_one_elsewhere_does_the_work(instance: Instance) -> None:
    instance.policy += '[requests]\nagent_team = ""\nagent_period = 0.5\n'
    instance.apply()
    request = add_request(instance, 2, 4, team="far")
    agent = start_agent(instance)
    all_split(instance, request, 2)
    audited(instance, request, jobs=4)
    assert embedded_agent(instance) is None

    agent.send_signal(signal.SIGTERM)
    out, log = agent.communicate(timeout=PATIENCE)
    assert agent.returncode == 0
    assert out.startswith("Agent far@")
    assert "splits requests of team far for http://127.0.0.1" in out
    events = [json.loads(line)["event"] for line in log.splitlines()]
    assert events[0] == "joined"
    assert events[-1] == "left"
    joined(instance, 0)


def test_the_second_process_of_a_name_replaces_the_first(instance: Instance) -> None:
    first = start_agent(instance, "--name", "one")
    joined(instance, 1)
    second = start_agent(instance, "--name", "one")
    _, log = first.communicate(timeout=PATIENCE)
    assert first.returncode == 5
    assert "another process has joined as one" in log
    assert "--name" in log
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=PATIENCE)
    assert second.returncode == 0


def test_a_token_without_the_right_or_of_another_server_is_refused_with_a_hint(instance: Instance) -> None:
    plain = start_agent(instance, token=instance.client().create_token("alice").token)
    _, log = plain.communicate(timeout=PATIENCE)
    assert plain.returncode == 3
    assert "alice (others) may not do this" in log
    assert "property AGENT" in log

    foreign = start_agent(instance, token="eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJib2IifQ.c2lnbmF0dXJl")
    _, log = foreign.communicate(timeout=PATIENCE)
    assert foreign.returncode == 3
    assert "hint:" in log
    assert "Traceback" not in log


def test_an_agent_of_another_version_is_told_to_change_it(instance: Instance) -> None:
    code = (
        "import sys\nimport pilotage.wire.agents as wire\n"
        "join = wire.JoinRequest\n"
        "wire.JoinRequest = lambda *a, **k: join(*a, **{**k, 'protocol': 99})\n"
        "from pilotage.main import main\nsys.exit(main())\n"
    )
    url = json.loads((instance.home / "server.json").read_text())["url"]
    ended = subprocess.run(
        [sys.executable, "-c", code, "agent", "--team", "far", "--server", url, "--home", str(instance.home)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 2
    assert "protocol 99" in ended.stderr
    assert "install the version of the server" in ended.stderr


def test_an_agent_in_another_network_works_over_tls_and_refuses_another_server(tmp_path: Path) -> None:
    with https_site(tmp_path, processors=64) as site:
        request = add_request(site.server, 2, 4, team="far")
        command = [*site.users.prefix, sys.executable, "-m", "pilotage.main", "agent", "--team", "far"]
        token = ["--token-file", str(site.server.home / "token"), "--home", str(tmp_path / "none")]
        right, wrong = site.fingerprints[0], "0" * 64

        def start(fingerprint: str) -> subprocess.Popen[str]:
            address = f"{site.url}#sha256={fingerprint}"
            return subprocess.Popen(
                [*command, *token, "--server", address],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )

        refused = start(wrong)
        _, log = refused.communicate(timeout=PATIENCE)
        assert refused.returncode == 6
        assert "the server is away" not in log, "it waits for a server that it will never trust"
        assert "is not accepted" in log
        agent = start(right)
        try:
            all_split(site.server, request, 2)
            audited(site.server, request, jobs=4)
        finally:
            agent.send_signal(signal.SIGTERM)
            agent.communicate(timeout=PATIENCE)
        assert agent.returncode == 0
