"""The recipes of CONTRIBUTING for a verb, a job field and a policy key, followed in a copy of the program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.docs.test_plug_ins import POLICY, ROOT, assert_checked, python

JOB = """\
executable: /bin/true
colour: {colour}
"""
JDL = 'Executable = "/bin/true"; Colour = "{colour}";'
FIELD = """\
    Field("colour", "choice", "The colour of its bar.", choices=("red", "green")),
"""
MESSAGES = '''\
"""Messages about medals."""

from __future__ import annotations

from dataclasses import dataclass

from pilotage.wire.call import ADMINISTRATORS, ApiCall
from pilotage.wire.limits import Message, Name


@dataclass
class MedalRequest:
    """Give a user a medal."""

    user: Name
    reason: Message = ""


@dataclass
class Medal:
    user: str
    by: str
    reason: str


GIVE_MEDAL = ApiCall("POST", "/v1/medals", MedalRequest, Medal, ADMINISTRATORS)
'''
ROUTE = '''\
"""The route for medals."""

from __future__ import annotations

from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller
from pilotage.wire.medals import GIVE_MEDAL, Medal, MedalRequest

router = CallRouter("medals")


@router.call(GIVE_MEDAL)
async def give_medal(body: MedalRequest, caller: TheCaller) -> Medal:
    """Give a user a medal, which has no effect."""
    return Medal(body.user, caller.user, body.reason)
'''
COMMAND = '''\
"""`pilotage medal`."""

from __future__ import annotations

from typing import Annotated

from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import Session, connected
from pilotage.wire.medals import GIVE_MEDAL, MedalRequest


@connected
def medal(
    session: Session,
    user: Annotated[str, CommandArgument("A user", "USER")],
    reason: Annotated[str, CommandOption("Reason to record", "TEXT")] = "",
) -> None:
    """Give a user a medal."""
    with session.client() as client:
        given = client.call(GIVE_MEDAL, MedalRequest(user, reason))
    session.screen.json(given)
    session.screen.line(f"{given.user} has a medal from {given.by}")
'''
SERVER = """
import asyncio, sys, threading, time
import uvicorn
from pilotage.cli.root import build, run
from pilotage.server.http.routing import build_routes
from pilotage.server.tokens import Caller

api = build_routes(None)
rights = {"token-of-ada": {"ADMINISTRATOR"}, "token-of-bob": set()}

async def identified(scope, receive, send):
    if scope["type"] == "http":
        token = dict(scope["headers"])[b"authorization"].decode().removeprefix("Bearer ")
        who = Caller(token.removeprefix("token-of-"), "g", frozenset(rights[token]), 0.0)
        scope.setdefault("state", {})["identity"] = who
    await api(scope, receive, send)

server = uvicorn.Server(uvicorn.Config(identified, port=0, lifespan="off", log_level="error"))
serving = threading.Thread(target=server.run)
serving.start()
while not server.started:
    serving.join(0.01)
port = server.servers[0].sockets[0].getsockname()[1]
place = ["--server", f"http://127.0.0.1:{port}", "--token-file"]
codes = [run(build(), [*place, f"{user}.token", *sys.argv[1:]]) for user in ("ada", "bob")]
server.should_exit = True
serving.join()
print(codes)
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
    # With compiled modules: Python knows by time and size those that the recipes change.
    shutil.copytree(ROOT / "src" / "pilotage", root / "pilotage")
    shutil.copytree(ROOT / "scripts", root / "scripts", ignore=skipped)
    core = root / "pilotage" / "core"
    extended(core / "jobs" / "description.py", "    retries: int = 0\n", '    colour: str = ""\n')
    fields = core / "jobs" / "fields.py"
    begin, _, table = fields.read_text(encoding="utf-8").partition("\nFIELDS")
    table, end, rest = table.partition("\n)\n")
    fields.write_text(f"{begin}\nFIELDS{table}\n{FIELD.rstrip()}{end}{rest}", encoding="utf-8")
    extended(core / "policy" / "model.py", "class Jobs(_Table, frozen=True):\n", KEY)
    (root / "pilotage" / "wire" / "medals.py").write_text(MESSAGES)
    (root / "pilotage" / "server" / "http" / "routes" / "medals.py").write_text(ROUTE)
    extended(
        root / "pilotage" / "server" / "http" / "auditing.py",
        "NOT_AUDITED: Mapping[str, str] = {\n",
        '    "POST /v1/medals": "has no effect",\n',
    )
    (root / "pilotage" / "cli" / "medals.py").write_text(COMMAND)
    commands = root / "pilotage" / "cli" / "commands.py"
    extended(
        commands,
        "COMMANDS: dict[str, LazyCommand] = {\n",
        '    "medal": _here("medals", "medal", "Give one"),\n',
    )
    for user in ("ada", "bob"):
        (root / f"{user}.token").write_text(f"token-of-{user}")
        (root / f"{user}.token").chmod(0o600)
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
    text = (copy / "policy.toml").read_text()
    assert_checked(
        copy,
        text,
        (text.replace("colours = 3", "colours = 9"), "jobs.colours must be"),
        (text.replace("colours", "colors"), "did you mean colours?"),
    )


def test_a_verb_works_from_the_command_line_for_those_who_may(copy: Path) -> None:
    done = python(copy, "-c", SERVER, "medal", "grace", "--reason", "bugs")
    assert "[0, 3]" in done.stdout, done.stderr
    assert "grace has a medal from ada" in done.stdout
    assert "bob (g) may not do this" in done.stderr
    assert "needs the property ADMINISTRATOR" in done.stderr
    done = python(copy, "-c", SERVER, "medal", "x" * 256)
    assert "[2, 3]" in done.stdout, done.stderr
    assert "user" in done.stderr


def test_a_verb_stands_in_the_pages(copy: Path) -> None:
    pages = run(
        copy,
        "from scripts.reference.pages import addresses, command_line; print(addresses(), command_line())",
    )
    row = "| `POST` | `/v1/medals` | Give a user a medal, which has no effect. | ADMINISTRATOR |"
    assert f"{row}  | `MedalRequest` | `Medal` |" in pages.stdout
    assert "pilotage medal" in pages.stdout


def test_field_and_key_stand_in_the_pages(copy: Path) -> None:
    code = "from scripts.reference.pages import job_description, the_policy; print(job_description(), the_policy())"
    pages = run(copy, code).stdout
    [field] = [line for line in pages.splitlines() if line.startswith("| `colour`")]
    assert "The colour of its bar." in field
    assert "| `jobs.colours` | integer | `2` | 1 to 8 | colours of a bar |" in pages
