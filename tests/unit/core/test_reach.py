"""`ces.NAME.reach` and `relay`: words that ssh takes as a host, and nothing that it would take as an option."""

from __future__ import annotations

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import parse
from pilotage.core.policy.batch_systems.machines import MachinesOptions
from pilotage.core.policy.reach import SshReach, parse_reach

POLICY = """
[groups.home]
[users.ada]
groups = ["home"]
[sites.here]
[ces.cluster]
site = "here"
type = "{kind}"
"""


@pytest.mark.parametrize(
    ("text", "reach"),
    [
        ("ssh login", SshReach("login")),
        ("ssh ada@login.example.org", SshReach("ada@login.example.org")),
        ("ssh -p 2222 -J gate login", SshReach("login", ("-p", "2222", "-J", "gate"))),
        ("ssh -F /etc/pool/ssh_config login", SshReach("login", ("-F", "/etc/pool/ssh_config"))),
        ("ssh ssh://ada@login:2222", SshReach("ssh://ada@login:2222")),
    ],
)
def test_hosts(text: str, reach: SshReach) -> None:
    assert parse_reach(text) == reach
    assert str(reach) == text


@pytest.mark.parametrize(
    "text",
    [
        *("rsh login", "ssh", "", "ssh -oProxyCommand=id", "ssh -o ProxyCommand=id login", "ssh login id"),
        *("ssh -p", "ssh -p 1;id login", "ssh -F relative login", "ssh $(id)", "ssh -l -v login"),
    ],
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_reach(text)
    assert "ssh HOST" in refused.value.hint


def test_a_local_ce_has_no_reach() -> None:
    with pytest.raises(InvalidInput, match="a local CE is the server's own machine"):
        parse(POLICY.format(kind="local") + 'reach = "ssh login"\n')


def test_a_relay_needs_a_reach() -> None:
    with pytest.raises(InvalidInput, match="a relay runs on the host of `reach`"):
        parse(POLICY.format(kind="slurm") + 'relay = "auto"\n')


@pytest.mark.parametrize("relay", ["auto", "auto:8443", "login", "login.example.org:8443", "[::1]:8443"])
def test_relays(relay: str) -> None:
    policy = parse(POLICY.format(kind="slurm") + f'reach = "ssh login"\nrelay = "{relay}"\n')
    assert policy.ces["cluster"].relay == relay


@pytest.mark.parametrize("relay", ["http://login", "login:port", "two words", "-x", "a" * 300])
def test_what_is_no_relay_is_refused(relay: str) -> None:
    with pytest.raises(InvalidInput, match="is no relay"):
        parse(POLICY.format(kind="slurm") + f'reach = "ssh login"\nrelay = "{relay}"\n')


def test_logs_on_another_machine_are_not_read_here() -> None:
    text = POLICY.format(kind="slurm") + 'reach = "ssh login"\n[ces.cluster.slurm]\nlog_folder = "/var/log"\n'
    assert parse(text).ces["cluster"].log_folder == ""


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("ws1 eight", "'ws1' cannot stand there"),
        ("", "it names no host"),
        ("ws1;rm", "'ws1;rm' is no host"),
    ],
)
def test_an_entry_that_names_no_machine_is_told_with_its_form(entry: str, reason: str) -> None:
    [(key, message)] = MachinesOptions(hosts=(entry,)).mistakes()
    assert key == "hosts"
    assert message.startswith(f"hosts: {entry!r} is no machine: write HOST or HOST CORES, such as ada@ws1 8")
    assert reason in message
