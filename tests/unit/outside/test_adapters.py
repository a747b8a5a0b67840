"""Every adapter that is found by its place has each member of its seam: nothing else compares them before they run."""

from __future__ import annotations

import inspect
from typing import get_type_hints

import pytest

from pilotage.outside.batch.adapter import BatchAdapter
from pilotage.outside.batch.registry import adapter_makers

MEMBERS = sorted(
    {*BatchAdapter.__annotations__, *(name for name in vars(BatchAdapter) if not name.startswith("_"))}
)


@pytest.mark.parametrize("name", sorted(adapter_makers()))
def test_an_adapter_has_each_member_of_the_seam(name: str) -> None:
    made = get_type_hints(adapter_makers()[name])["return"]
    assert inspect.isclass(made)
    own = inspect.getsource(made.__init__)
    assert [member for member in MEMBERS if not hasattr(made, member) and f"self.{member}" not in own] == []
