from __future__ import annotations

from collections.abc import Iterator

import pytest

from pilotage.client import Client
from tests.unit.client.fake_server import State, serving


@pytest.fixture
def fake() -> Iterator[tuple[str, State]]:
    with serving() as both:
        yield both


@pytest.fixture
def state(fake: tuple[str, State]) -> State:
    return fake[1]


@pytest.fixture
def client(fake: tuple[str, State]) -> Iterator[Client]:
    with Client(fake[0], "a-token", patience=3.0) as one:
        yield one
