from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interleavings.building import opened
from tests.interleavings.pairs import Pairs
from tests.interleavings.world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with opened(tmp_path_factory.mktemp("servers")) as made:
        yield made


@pytest.fixture
def pairs(world: World) -> Iterator[Pairs]:
    made = Pairs(world)
    yield made
    made.close()
