"""Keys of S3 places: where they are found, and which files are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotage.core.errors import NotAuthenticated
from pilotage.core.policy.storage_model import S3Options
from pilotage.outside.storage.credentials import find_credentials
from pilotage.outside.storage.sigv4 import S3Credentials

FILE = """\
[default]
aws_access_key_id = A
aws_secret_access_key = B%x
[temporary]
aws_access_key_id = C
aws_secret_access_key = D
aws_session_token = E
[half]
aws_access_key_id = F
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "credentials"
    path.write_text(FILE)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("profile", "expected"),
    [("default", S3Credentials("A", "B%x")), ("temporary", S3Credentials("C", "D", "E"))],
)
def test_a_section_of_the_file(file: Path, profile: str, expected: S3Credentials) -> None:
    options = S3Options(credentials_file=str(file), profile=profile)
    assert (
        find_credentials(options, {"AWS_ACCESS_KEY_ID": "not", "AWS_SECRET_ACCESS_KEY": "used"}) == expected
    )


def test_variables_of_the_server() -> None:
    variables = {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "B"}
    assert find_credentials(S3Options(), variables) == S3Credentials("A", "B")
    with pytest.raises(NotAuthenticated, match="no key"):
        find_credentials(S3Options(), {"AWS_ACCESS_KEY_ID": "A"})


@pytest.mark.parametrize(
    ("profile", "mode", "reason"),
    [
        ("half", 0o600, "lacks"),
        ("missing", 0o600, "no section"),
        ("default", 0o640, "other accounts"),
        ("default", 0o604, "other accounts"),
    ],
)
def test_a_file_that_cannot_be_used(file: Path, profile: str, mode: int, reason: str) -> None:
    file.chmod(mode)
    with pytest.raises(NotAuthenticated, match=reason) as refused:
        find_credentials(S3Options(credentials_file=str(file), profile=profile), {})
    assert "B%x" not in str(refused.value)


def test_a_file_that_is_missing_or_is_none(tmp_path: Path) -> None:
    options = S3Options(credentials_file=str(tmp_path / "none"))
    with pytest.raises(NotAuthenticated, match="No such file"):
        find_credentials(options, {})
    (tmp_path / "none").write_text("no sections here")
    (tmp_path / "none").chmod(0o600)
    with pytest.raises(NotAuthenticated, match="not a file with sections") as refused:
        find_credentials(options, {})
    assert "no sections here" not in str(refused.value)
