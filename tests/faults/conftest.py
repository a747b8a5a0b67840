from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import slurm
from tests.faults.batch_frame import Faulty, FaultyCommands, end_pause, leave_nothing
from tests.faults.slurm_shape import SLURM, FaultyCluster
from tests.instance import Instance

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder slow: each starts real processes."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def faulty(cluster: slurm.Cluster, tmp_path_factory: pytest.TempPathFactory) -> FaultyCluster:
    """The Slurm of a module. Modules of other batch systems have another one."""
    return FaultyCommands(cluster, SLURM, tmp_path_factory.mktemp("faulty"))


@pytest.fixture
def instance(server: Instance, faulty: Faulty[Any]) -> Iterator[Instance]:
    """The one server of all tests of a module."""
    end_pause(server)
    faulty.clear()
    yield server
    leave_nothing(server, faulty)
