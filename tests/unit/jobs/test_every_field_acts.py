"""Each field of a job is read by the program, beyond the rooms that read and show descriptions."""

from __future__ import annotations

import ast
from pathlib import Path

import pilotage
from pilotage.core.jobs.fields import FIELDS

SOURCE = Path(pilotage.__file__).parent
READERS_OF_TEXTS = SOURCE / "core/jobs"
"""These modules read, check and write all fields. A field that nothing else reads has no effect."""
WITHOUT_EFFECT = {"max_processors"}
"""Their meaning says so."""
AS_A_TAG = {"whole_node"}
"""The description itself turns them into a tag."""


def attributes_read() -> set[str]:
    """The names of all attributes that the program reads outside of `core/jobs` and the messages."""
    return {
        node.attr
        for path in SOURCE.rglob("*.py")
        if READERS_OF_TEXTS not in path.parents and SOURCE / "wire" not in path.parents
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def test_every_field_acts_or_says_that_it_does_not() -> None:
    read = attributes_read()
    idle = {field.name for field in FIELDS if field.name not in read}
    assert idle == WITHOUT_EFFECT | AS_A_TAG
    assert all(f"self.{name}" in (SOURCE / "core/jobs/description.py").read_text() for name in AS_A_TAG)
    for field in FIELDS:
        assert ("No effect yet" in field.meaning) == (field.name in WITHOUT_EFFECT), field.name
