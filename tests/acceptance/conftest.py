from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oidc import OidcProvider, provider

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder slow: each starts real processes."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def oidc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcProvider]:
    with provider(tmp_path_factory.mktemp("oidc")) as made:
        yield made


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a short path, since the name of a socket has at most 108 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="ex-"))
    yield folder
    shutil.rmtree(folder)
