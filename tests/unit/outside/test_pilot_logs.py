"""The output of pilots in a shared folder, where payloads may write too."""

from __future__ import annotations

import os
from pathlib import Path

from pilotage.outside.batch.pilot_logs import read_log_tail


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
