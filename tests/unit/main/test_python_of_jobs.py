"""`up` names the python3 that jobs find, never that of the server's virtual environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pilotage.main.payload_python import describe_payload_python


def program(folder: Path, text: str) -> Path:
    folder.mkdir()
    path = folder / "python3"
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_the_first_of_the_path_is_named_with_its_version(tmp_path: Path) -> None:
    found = program(tmp_path / "bin", "#!/bin/sh\necho Python 3.99.1\n")
    assert describe_payload_python({"PATH": f"{tmp_path}/none:{tmp_path}/bin"}) == (
        f"Jobs find python3 at {found} (Python 3.99.1)."
    )


def test_the_servers_own_environment_is_left_out(tmp_path: Path) -> None:
    found = program(tmp_path / "bin", '#!/bin/sh\necho "Python 3.99.1 $VIRTUAL_ENV$PYTHONPATH"\n')
    own = os.path.join(sys.prefix, "bin")
    given = {"PATH": f"{own}:{tmp_path}/bin", "VIRTUAL_ENV": sys.prefix, "PYTHONPATH": "/x"}
    assert describe_payload_python(given) == f"Jobs find python3 at {found} (Python 3.99.1)."


def test_an_absent_or_broken_python_is_told(tmp_path: Path) -> None:
    assert describe_payload_python({"PATH": str(tmp_path)}) == "Jobs find no python3 in their PATH."
    program(tmp_path / "bin", "#!/no/such/interpreter\n")
    assert "whose version is unknown" in describe_payload_python({"PATH": f"{tmp_path}/bin"})
