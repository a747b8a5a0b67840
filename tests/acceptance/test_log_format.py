"""`up --log-format json`: each line of the log of a server is an object."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.instance import Instance

pytestmark = pytest.mark.slow


def test_each_line_of_the_log_is_an_object(tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    try:
        instance.start("--log-format", "json", "--verbose")
        instance.stop_server()
        lines = [json.loads(line) for line in (instance.home / "test.log").read_text().splitlines()]
    finally:
        instance.close()
    assert all({"at", "level", "logger", "event"} <= line.keys() for line in lines)
    [announced] = [line for line in lines if line.get("url")]
    assert announced["event"].startswith("Pilotage serves ")
