"""The recipes of CONTRIBUTING for a job field and a policy key, followed to the letter in a copy of the program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.docs.test_plug_ins import POLICY, ROOT, python

JOB = """\
executable: /bin/true
colour: {colour}
"""
JDL = 'Executable = "/bin/true"; Colour = "{colour}";'
FIELD = """\
    Field("colour", ("Colour",), "choice", "The colour of its bar.", choices=("red", "green")),
"""
KEY = '    colours: Annotated[int, Setting("colours of a bar", 1, 8)] = 2\n'


def extended(file: Path, after: str, *lines: str) -> None:
    """Insert lines after the only occurrence of a text."""
    text = file.read_text(encoding="utf-8")
    assert text.count(after) == 1, (file, after)
    file.write_text(text.replace(after, after + "".join(lines)), encoding="utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the program with one more job field and one more policy key, made by the first steps of the recipes."""
    root = tmp_path_factory.mktemp("copy")
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "pilotage", root / "pilotage", ignore=skipped)
    shutil.copytree(ROOT / "scripts", root / "scripts", ignore=skipped)
    core = root / "pilotage" / "core"
    extended(core / "jobs" / "description.py", "    retries: int = 0\n", '    colour: str = ""\n')
    fields = core / "jobs" / "fields.py"
    begin, _, table = fields.read_text(encoding="utf-8").partition("\nFIELDS")
    table, end, rest = table.partition("\n)\n")
    fields.write_text(f"{begin}\nFIELDS{table}\n{FIELD.rstrip()}{end}{rest}", encoding="utf-8")
    extended(core / "policy" / "model.py", "class Jobs(_Table, frozen=True):\n", KEY)
    (root / "policy.toml").write_text(POLICY.partition("[correction]")[0] + "[jobs]\ncolours = 3\n")
    return root


def run(copy: Path, code: str) -> subprocess.CompletedProcess[str]:
    done = python(copy, "-c", code)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(("text", "suffix"), [(JOB, ".yaml"), (JDL, ".jdl")])
def test_a_job_field_is_read_checked_and_stored(copy: Path, text: str, suffix: str) -> None:
    code = f"""
from pilotage.client.description import read_description_text
from pilotage.core.errors import PilotageError
from pilotage.core.jobs.json_format import description_from_json, description_to_json
described = read_description_text({text.format(colour="red")!r}, suffix={suffix!r}).submission.description
stored = description_to_json(described)
print(stored["colour"], description_from_json(stored) == described)
try:
    read_description_text({text.format(colour="pink")!r}, suffix={suffix!r})
except PilotageError as error:
    print(error.message, error.hint)
"""
    accepted, refused = run(copy, code).stdout.splitlines()
    assert accepted == "red True"
    assert "colour" in refused.lower()
    assert "red" in refused
    assert "green" in refused


def test_a_policy_key_is_checked_with_its_range(copy: Path) -> None:
    check = ("-m", "pilotage.main", "policy", "check", "--offline")
    done = python(copy, *check, "policy.toml")
    assert done.returncode == 0, done.stderr
    for old, new, message in (
        ("colours = 3", "colours = 9", "jobs.colours must be"),
        ("colours", "colors", "did you mean colours?"),
    ):
        (copy / "wrong.toml").write_text((copy / "policy.toml").read_text().replace(old, new))
        refused = python(copy, *check, "wrong.toml")
        assert refused.returncode in (1, 2)
        assert message in refused.stderr


def test_field_and_key_stand_in_the_pages(copy: Path) -> None:
    code = "from scripts.reference.pages import job_description, the_policy; print(job_description(), the_policy())"
    pages = run(copy, code).stdout
    [field] = [line for line in pages.splitlines() if line.startswith("| `colour`")]
    assert "The colour of its bar." in field
    assert "| `jobs.colours` | integer | `2` | 1 to 8 | colours of a bar |" in pages
