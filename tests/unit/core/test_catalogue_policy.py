"""The tables of outside catalogues: read with their defaults, or refused with the line and the reason."""

from __future__ import annotations

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import parse
from pilotage.core.policy.catalogue_types.rucio import RucioOptions

POLICY = """\
[groups.g]
[users.u]
groups = ["g"]
[sites.here]
[catalogues.grid]
type = "rucio"
[catalogues.grid.places.DISK]
site = "here"
prefix = "/store"
[catalogues.grid.rucio]
url = "https://rucio.example.org:443/rucio"
"""


def test_a_catalogue_is_read_with_its_defaults() -> None:
    catalogue = parse(POLICY).catalogues["grid"]
    assert (catalogue.type, catalogue.period, catalogue.open_datasets) == ("rucio", 600.0, "wait")
    assert (catalogue.places["DISK"].site, catalogue.places["DISK"].prefix) == ("here", "/store")
    options = catalogue.options_as(RucioOptions)
    assert (options.auth, options.locked, options.paths) == ("token", True, "hash")


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('type = "rucio"', 'type = "dbs"', 6, "dbs"),
        ('type = "rucio"', 'type = "rucio"\nperiod = 0', 7, "period"),
        ("catalogues.grid", "catalogues.'a:b'", 5, "cannot be used"),
        ('site = "here"\nprefix', 'site = "there"\nprefix', 8, "there is no site there"),
        ('"/store"', '"store"', 9, "neither an absolute path nor a URL"),
        ("https://rucio", "rucio", 11, "is not an address"),
        ("https://rucio", "https://user@rucio", 11, "is not an address"),
        ("url = ", "auth_url = ", 10, "the address of the Rucio server is missing"),
        ("url = ", 'auth = "userpass"\nurl = ', 10, "needs username"),
        ("url = ", 'token_file = "token"\nurl = ', 11, "no absolute path"),
    ],
)
def test_a_catalogue_that_cannot_be_used_is_refused_with_its_line(
    old: str, new: str, line: int, said: str
) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        parse(POLICY.replace(old, new))
    assert refused.value.line == line
