"""Faults of the way to a cluster behind ssh: nothing is lost, nothing is tried in a loop, and the CE says why."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.acceptance.ssh_site import SshSite, ssh_site
from tests.deadlines import PATIENCE
from tests.instance import until
from tests.namespaces import CLIENT_ADDRESS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(6 * PATIENCE)]

NO_CONNECTION = "CE slurm: no connection to"
RELAY = "The relay on a login node"


def reason(site: SshSite) -> str:
    """Why no pilots are submitted to the CE; empty: they are."""
    ce = site.json("ce", "show", "slurm", "--json")["ce"]
    return "" if ce["state"] == "active" else f"{ce['state']}: {ce['reason']}"


def authentications(site: SshSite) -> int:
    """The connections that the login node's sshd has seen."""
    log = (site.login.folder / "sshd.log").read_text()
    return sum(word in line for line in log.splitlines() for word in ("Accepted", "closed by auth", "Failed"))


def relays(site: SshSite) -> list[int]:
    """The relays on the login node of this site; other tests have some at the same time."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "python" in words[0] and any(RELAY in word for word in words):
            found.append(int(folder.name))
    return [pid for pid in found if site.login.network.has(pid)]


def attempts(site: SshSite, submission: str) -> set[int]:
    listed = site.json("status", "-s", submission, "--limit", "1000", "--json")["jobs"]
    return {job["attempt"] for job in listed}


def finished(site: SshSite, submission: str) -> int:
    return site.states(submission).get("Done", 0)


@contextmanager
def busy(folder: Path, *, hidden: bool, lease: float = 60.0) -> Iterator[tuple[SshSite, str]]:
    """A cluster that runs the first of 60 jobs. `hidden`: pilots reach the server by a relay only."""
    relay = {"relay": f'"{CLIENT_ADDRESS}"'} if hidden else {}
    with ssh_site(folder, hidden=hidden, lease=str(lease), idle="60", **relay) as site:
        site.log_in()
        submission = site.submit(60, "sleep 1")
        until(lambda: finished(site, submission), what="the first job")
        yield site, submission


def test_a_lost_connection_is_told_and_opened_by_a_person_only(tmp_path: Path) -> None:
    with busy(tmp_path, hidden=False) as (site, submission):
        [control] = [path for path in (site.server.home / "ssh").iterdir() if path.is_socket()]
        assert control.stat().st_mode & 0o77 == 0
        assert control.parent.stat().st_mode & 0o77 == 0
        before = authentications(site)
        for pid in ssh_masters(control.name):
            os.kill(pid, signal.SIGKILL)
        until(lambda: "pilotage ce login" in reason(site), what="the reason")
        assert reason(site).startswith("unreachable")
        # Pilots that run reach the server by themselves.
        site.wait(submission, count=60)
        assert authentications(site) == before
        site.log_in()
        until(lambda: not reason(site), what="an active CE")
        assert attempts(site, submission) == {1}


def test_a_submission_over_a_closed_connection_is_not_in_doubt(tmp_path: Path) -> None:
    """It certainly never began, so its pilot is given up at once, and the CE is unreachable before its next listing."""
    with ssh_site(tmp_path, listing_period="1000", settle="1000", idle="1") as site:
        site.log_in()
        site.wait(site.submit(1, "true"), count=1)
        until(lambda: all(pilot["ended"] for pilot in site.pilots()), what="the end of the first pilot")
        known = {pilot["id"] for pilot in site.pilots()}
        told = site.server.log().count(NO_CONNECTION)  # The CE was unreachable before the login, too.
        [control] = [path for path in (site.server.home / "ssh").iterdir() if path.is_socket()]
        for pid in ssh_masters(control.name):
            os.kill(pid, signal.SIGKILL)
        submission = site.submit(1, "true")
        until(lambda: "pilotage ce login" in reason(site), what="the reason")
        assert reason(site).startswith("unreachable")
        given_up = [pilot for pilot in site.pilots() if pilot["id"] not in known]
        assert {pilot["state"] for pilot in given_up} == {"Deleted"}
        assert site.json("ce", "show", "slurm", "--json")["ce"]["in_doubt"] == 0
        assert site.server.log().count(NO_CONNECTION) == told + 1, "the log has it once"
        site.log_in()
        site.wait(submission, count=1)
        assert attempts(site, submission) == {1}


def ssh_masters(control: str) -> list[int]:
    """The processes that have opened this connection."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                words = (folder / "cmdline").read_text(errors="replace").replace("\0", " ")
            except OSError:
                continue
            if words.startswith("ssh -M ") and control in words:
                found.append(int(folder.name))
    return found


def test_a_login_node_that_is_started_again(tmp_path: Path) -> None:
    with busy(tmp_path, hidden=True) as (site, submission):
        site.login.stop()
        until(lambda: reason(site).startswith("unreachable"), what="the reason")
        site.login.start()
        site.log_in()
        until(lambda: not reason(site), what="an active CE")
        site.wait(submission, count=60)
        assert attempts(site, submission) == {1}


def test_a_killed_relay_is_started_again_at_its_port(tmp_path: Path) -> None:
    with busy(tmp_path, hidden=True) as (site, submission):
        [relay] = relays(site)
        os.kill(relay, signal.SIGKILL)
        until(lambda: [pid for pid in relays(site) if pid != relay], what="another relay")
        site.wait(submission, count=60)
        assert attempts(site, submission) == {1}
        until(lambda: not reason(site), what="an active CE")


def test_a_relay_ends_with_its_server(tmp_path: Path) -> None:
    with busy(tmp_path, hidden=True) as (site, submission):
        site.server.kill_server()
        until(lambda: not relays(site), what="the end of the relay")
        site.server.start("--listen", "203.0.113.1")
        site.wait(submission, count=60)
        assert attempts(site, submission) == {1}


def test_a_laptop_that_sleeps_longer_than_a_lease(tmp_path: Path) -> None:
    with busy(tmp_path, hidden=True, lease=10.0) as (site, submission):
        # The server first: then no further command of ssh begins.
        assert site.server.process is not None
        asleep = send_to_all([site.server.process.pid], signal.SIGSTOP)
        asleep += send_to_all(ssh_of(site), signal.SIGSTOP)
        try:
            # The relay misses the signs of life of its server.
            until(lambda: not relays(site), 2 * PATIENCE, "the end of the relay")
        finally:
            send_to_all(asleep, signal.SIGCONT)
        site.wait(submission, count=60)
        assert attempts(site, submission) == {1}


def send_to_all(processes: list[int], sent: signal.Signals) -> list[int]:
    """Send a signal; returns the processes that live. A command of ssh may have ended since it was listed."""
    living = []
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, sent)
            living.append(process)
    return living


def ssh_of(site: SshSite) -> list[int]:
    """All processes of ssh on the laptop."""
    [control] = [path.name for path in (site.server.home / "ssh").iterdir() if path.is_socket()]
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                words = (folder / "cmdline").read_text(errors="replace")
            except OSError:
                continue
            if words.startswith("ssh") and control in words:
                found.append(int(folder.name))
    return found


def test_another_host_key_is_refused_in_plain_words(tmp_path: Path) -> None:
    with ssh_site(tmp_path) as site:
        site.login.stop()
        site.login.start(host_key="other-host")
        done = site.server.cli("ce", "login", "slurm")
        assert done.returncode == 1
        assert "its host key is another one than before" in done.stderr
        until(lambda: "pilotage ce login" in reason(site), what="the reason of the CE")


def test_an_unknown_host_key_is_refused_in_plain_words(tmp_path: Path) -> None:
    with ssh_site(tmp_path) as site:
        (site.login.folder / "known_hosts").write_text("")
        done = site.server.cli("ce", "login", "slurm")
        assert done.returncode == 1
        assert "its host key is not known" in done.stderr


def test_a_prompt_that_nobody_answers(tmp_path: Path) -> None:
    with ssh_site(tmp_path, sshd=("PubkeyAuthentication=no",)) as site:
        done = site.server.cli("ce", "login", "slurm")
        assert done.returncode == 1
        assert "it refuses the account" in done.stderr
        before = authentications(site)
        until(lambda: "pilotage ce login" in reason(site), what="the reason")
        assert authentications(site) == before
