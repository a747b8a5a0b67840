"""The output of pilots in a shared folder, where payloads may write too."""

from __future__ import annotations

import os
from pathlib import Path

from pilotage.outside.batch.pilot_logs import read_log_tail, remove_log


def test_the_end_of_a_regular_file_only(tmp_path: Path) -> None:
    folder = str(tmp_path)
    (tmp_path / "pilotage-a-0.log").write_text("x" * 5000 + "é end")
    assert read_log_tail(folder, "pilotage-a/0", 6) == "xé end"
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (tmp_path / "pilotage-a-1.log").symlink_to(secret)
    os.mkfifo(tmp_path / "pilotage-a-2.log")
    (tmp_path / "pilotage-a-3.log").mkdir()
    for index in ("1", "2", "3", "4", "../0", ""):
        assert read_log_tail(folder, f"pilotage-a/{index}") == ""
    assert read_log_tail("", "pilotage-a/0") == ""
    assert read_log_tail(folder, "local-stamp") == ""


def test_only_the_file_of_the_pilot_is_removed(tmp_path: Path) -> None:
    folder, secret = tmp_path / "logs", tmp_path / "secret.log"
    folder.mkdir()
    secret.write_text("secret")
    for name in ("pilotage-a-0.log", "pilotage-a-1.log", "pilotage-ab-0.log"):
        (folder / name).write_text("output")
    (folder / "pilotage-a-2.log").symlink_to(secret)
    (folder / "pilotage-a-3.log").mkdir()
    for stamp in ("pilotage-a/0", "pilotage-a/2", "pilotage-a/3", "pilotage-a/4", "pilotage-a/../../secret"):
        remove_log(str(folder), stamp)
    remove_log("", "secret")
    assert sorted(path.name for path in folder.iterdir()) == [
        "pilotage-a-1.log",
        "pilotage-a-3.log",
        "pilotage-ab-0.log",
    ]
    assert secret.exists(), "the link is removed, not its target"
