"""The storage places of sites, and the default of a site with a local CE."""

from __future__ import annotations

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import parse

POLICY = """\
[groups.home]
[users.ada]
groups = ["home"]
[sites.here]
[sites.far]
storage = ["/data/a", "/data/b"]
[sites.none]
[ces.local]
site = "here"
[ces.cluster]
site = "none"
type = "slurm"
"""


@pytest.mark.parametrize(
    ("site", "places"),
    [("here", ("/home/storage",)), ("far", ("/data/a", "/data/b")), ("none", ()), ("unknown", ())],
)
def test_the_home_is_the_place_of_its_own_site_only(site: str, places: tuple[str, ...]) -> None:
    assert parse(POLICY).storage_of(site, "/home/storage") == places


def test_without_a_home_folder_there_is_no_default() -> None:
    assert parse(POLICY).storage_of("here", "") == ()


@pytest.mark.parametrize("path", ["data", "/", "/dev", "//", "/proc/", ""])
def test_a_path_that_cannot_store_files_is_refused_with_its_line(path: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be a storage place") as refused:
        parse(POLICY.replace('"/data/b"', f'"{path}"'))
    assert refused.value.line == 6
