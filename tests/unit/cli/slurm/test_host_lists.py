"""Lists of hosts: short forms mean the hosts that they were made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.cli.slurm.host_lists import format_hosts, host_names
from pilotage.core.errors import InvalidInput

HOSTS = st.lists(st.from_regex(r"[a-z][a-z-]{0,3}[0-9]{0,3}", fullmatch=True), max_size=12)


@given(HOSTS)
def test_the_short_form_means_the_same_hosts_in_their_order(hosts: list[str]) -> None:
    assert host_names(format_hosts(hosts)) == hosts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[08-10]-ib,gpu", ["n08-ib", "n09-ib", "n10-ib", "gpu"]),
        ("a,b", ["a", "b"]),
        ("", []),
    ],
)
def test_forms_that_slurm_has(text: str, hosts: list[str]) -> None:
    assert host_names(text) == hosts


def test_neighbours_share_brackets() -> None:
    assert format_hosts(["n1", "n2", "n3", "n07", "n08", "gpu"]) == "n[1-3],n[07-08],gpu"


@pytest.mark.parametrize("text", ["n[", "n]", "n[]", "n[3-1]", "n[1-2", "n[x]", "a b", "n[0-999999999]"])
def test_words_that_are_no_lists(text: str) -> None:
    with pytest.raises(InvalidInput):
        host_names(text)
