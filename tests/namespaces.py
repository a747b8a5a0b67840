"""Two network namespaces joined by a cable, made by a test as root. Nothing of this machine's network is touched."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from tests.deadlines import PATIENCE
from tests.debian_packages import still_lacking

SERVER_ADDRESS = "198.51.100.1"
CLIENT_ADDRESS = "198.51.100.2"
SECOND_ADDRESS = "198.51.100.3"
HIDDEN_ADDRESS = "203.0.113.1"

_loopbacks = count()


@dataclass(frozen=True)
class Namespace:
    """A network of its own: loopback, and one end of the cable. Without a name: this machine's network."""

    name: str
    address: str

    @property
    def path(self) -> str:
        return f"/run/netns/{self.name}"

    def has(self, pid: int) -> bool:
        """Whether a process runs in this network; other tests have networks with the same addresses."""
        try:
            return Path(f"/proc/{pid}/ns/net").stat().st_ino == Path(self.path).stat().st_ino
        except OSError:
            return False

    @property
    def prefix(self) -> tuple[str, ...]:
        """Command before one that runs in this network. Unlike `ip netns exec`, it keeps /sys as it is."""
        return ("nsenter", f"--net={self.path}") if self.name else ()


def own_loopback() -> Namespace:
    """This machine's network, with an address of loopback that no other test uses at the same time."""
    number = next(_loopbacks) + 256 * os.getpid()
    return Namespace("", f"127.{64 + number // 65536 % 64}.{number // 256 % 256}.{1 + number % 250}")


def missing() -> str:
    """Why there are no network namespaces here; empty: there are. As root on Debian the package is installed."""
    if os.geteuid() != 0:
        return "network namespaces cannot be made: not root"
    if still_lacking(_lacking, ["iproute2"]):
        return "network namespaces cannot be made: iproute2 is not installed"
    probe = f"pilotage-{os.getpid()}-probe"
    done = _ip("netns", "add", probe, check=False)
    if done.returncode == 0:
        cable = _ip("-n", probe, "link", "add", "probe0", "type", "veth", check=False)
        _ip("netns", "del", probe)
        done = cable
    return "" if done.returncode == 0 else f"network namespaces cannot be made: {done.stderr.strip()}"


def _lacking() -> list[str]:
    return [] if shutil.which("ip") else ["ip"]


def _ip(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True, timeout=PATIENCE)


@contextmanager
def joined_namespaces() -> Iterator[tuple[Namespace, Namespace]]:
    """The server's network and the clients'. Skips the test loudly where they cannot be made."""
    if reason := missing():
        if "netns" in os.environ.get("PILOTAGE_TEST_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    pair = (
        Namespace(f"pilotage-{os.getpid()}-a", SERVER_ADDRESS),
        Namespace(f"pilotage-{os.getpid()}-b", CLIENT_ADDRESS),
    )
    made = []
    try:
        for namespace in pair:
            _ip("netns", "add", namespace.name)
            made.append(namespace)
            _ip("-n", namespace.name, "link", "set", "lo", "up")
        first, second = pair[0].name, pair[1].name
        _ip("-n", first, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", second)
        for namespace in pair:
            _ip("-n", namespace.name, "addr", "add", f"{namespace.address}/24", "dev", "cable")
            _ip("-n", namespace.name, "link", "set", "cable", "up")
        yield pair
    finally:
        for namespace in made:
            _ip("netns", "del", namespace.name)


def with_second_address(namespace: Namespace) -> str:
    """Give the end of a cable another address."""
    _ip("-n", namespace.name, "addr", "add", f"{SECOND_ADDRESS}/24", "dev", "cable")
    return SECOND_ADDRESS


def with_own_address(namespace: Namespace) -> str:
    """Give a network an address that the other one has no way to."""
    _ip("-n", namespace.name, "addr", "add", f"{HIDDEN_ADDRESS}/32", "dev", "lo")
    return HIDDEN_ADDRESS


@contextmanager
def cut(namespace: Namespace) -> Iterator[None]:
    """The cable is unplugged at this end: what is sent meanwhile is lost without a word."""
    _ip("-n", namespace.name, "link", "set", "cable", "down")
    try:
        yield
    finally:
        _ip("-n", namespace.name, "link", "set", "cable", "up")
