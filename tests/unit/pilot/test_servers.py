"""The servers that a pilot knows: it leaves one that does not answer, and learns those that are announced."""

from __future__ import annotations

import pytest

from pilotage.pilot.servers import MAX_SERVERS, Servers

A, B, C = (f"https://{name}.example.org:8443" for name in "abc")


def test_a_server_is_left_once_by_all_threads_that_find_it_silent() -> None:
    servers = Servers([A, B, C])
    servers.leave(A)
    servers.leave(A)
    assert servers.current == B
    servers.leave(B)
    servers.leave(C)
    assert servers.current == A


def test_the_only_server_is_never_left() -> None:
    servers = Servers([A, A])
    servers.leave(A)
    assert servers.current == A


def test_announced_servers_take_the_place_of_the_known_ones() -> None:
    servers = Servers([A, B])
    servers.learn(f"{A}, {C}")
    assert servers.addresses == (A, C)
    servers.leave(A)
    assert servers.current == C


def test_the_server_in_use_stays_known_if_others_know_it_by_another_name() -> None:
    servers = Servers([A])
    servers.learn(f"{B},{C}")
    assert servers.addresses == (A, B, C)
    assert servers.current == A


@pytest.mark.parametrize(
    "announced",
    ["", "nonsense", "http://a.example.org:80", f"{B},http://c:1", "https://", "https://h:x", "ftp://h"],
)
def test_announcements_that_are_none_or_weaker_are_ignored(announced: str) -> None:
    servers = Servers([A, B])
    servers.learn(announced)
    assert servers.addresses == (A, B)


def test_no_server_can_announce_without_end() -> None:
    servers = Servers([A])
    servers.learn(",".join(f"https://h{number}:1" for number in range(100_000)))
    assert len(servers.addresses) == MAX_SERVERS + 1


@pytest.mark.parametrize("address", ["", "host:1", "https://", "ftp://h"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="not an http or https address"):
        Servers([address])
