"""Templates and files of pages: what users write never becomes markup, and nothing leads to another host."""

from __future__ import annotations

import ast
import hashlib
import re
import tomllib
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from jinja2 import UndefinedError

from pilotage.core.errors import InvalidInput
from pilotage.server.web import formats
from pilotage.server.web.assets import FOLDER as STATIC
from pilotage.server.web.assets import Assets
from pilotage.server.web.job_changes import change_description, changed_submission
from pilotage.server.web.page import page_routers
from pilotage.server.web.pages.selection import query_of, selection_of
from pilotage.server.web.pages.work import bar_of
from pilotage.server.web.rendering import FOLDER, HEADERS, POLICY, make_templates
from pilotage.server.web.visit import _OWN_PAGE
from pilotage.wire.jobs import Selection
from pilotage.wire.submission_progress import SubmissionSummary
from pilotage.wire.submissions import JobValues, SubmissionSource
from pilotage.wire.why import Opening

TEMPLATES = sorted(FOLDER.glob("*.html"))
NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' autofocus onfocus=alert(1) x='",
    "\u202egnp.exe",
    "\u2066\u200f",
    "x" * 4096,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "{{ 7 * 7 }}",
    "javascript:alert(1)",
)
ROW = SubmissionSummary(7, "ada", "g", "n", "", 0.0, 10, {"Done": 3, "Failed": 2, "Killed": 1, "Running": 1})


@pytest.mark.parametrize("name", NAMES)
def test_names_are_text_on_a_page(name: str) -> None:
    row = SubmissionSummary(7, name, name, name, name, 0.0, 10, {name: 1})
    page = make_templates(Assets()).get_template("work.html")
    shown = page.render(
        root="./", menu=[], path="/", caller=None, form_token="", instance=name, now=1.0, notice="",
        rows=[(row, bar_of(row), None)], next=None, first_page=False,
    )  # fmt: skip
    escaped = name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = escaped.replace("'", "&#39;").replace('"', "&#34;")
    assert f'<bdi class="name">{escaped}</bdi>' in shown
    assert "<script>alert" not in shown
    assert "<img" not in shown
    assert " 49 " not in shown


def test_all_callers_of_a_template_give_the_same_variables() -> None:
    """A variable that the caller of a rare page forgets is an error of the server."""
    given: dict[str, dict[str, set[str]]] = {}
    for module in sorted(FOLDER.parent.rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "visit.render",
                "visit.render_charts",
            ):
                names = {keyword.arg or ast.unparse(keyword.value) for keyword in node.keywords}
                template = ast.literal_eval(node.args[0])
                given.setdefault(template, {})[f"{module.name}:{node.lineno}"] = names
    assert len(given) > 20
    assert {
        name: calls for name, calls in given.items() if len(set(map(frozenset, calls.values()))) > 1
    } == {}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_have_no_inline_code_and_relative_addresses_only(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"\s(style|on\w+)=", text)
    assert not re.search(r"<style|<script>|\|safe|javascript:|hx-on|hx-vals=.js", text)
    addresses = re.findall(r"""(?:href|src|action|hx-get)=["']([^"']*)""", text)
    assert all(address.startswith(("{{ root }}", "#")) for address in addresses), addresses
    assert text.count('method="post"') == text.count('name="form_token"') or path.name == "signin.html"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_names_of_users_are_isolated_from_the_text_around(path: Path) -> None:
    """A right-to-left mark in one of them turns no other words around."""
    named = r"\{\{ [\w.]*\b(name|owner|group|reason|site|hostname|actor|detail|user|instance)(\[0\])? \}\}"
    for found in re.finditer(named, path.read_text()):
        if found[0] in ("{{ name }}",):  # of a verb, a field or a stream: ours
            continue
        before = path.read_text()[: found.start()]
        assert re.search(r"<bdi[^>]*>$", before) or re.search(r'="[^"<>]*$', before), found[0]


def test_a_value_that_a_page_does_not_give_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        make_templates(Assets()).get_template("error.html").render()


def test_the_policy_of_content_allows_own_files_only() -> None:
    directives = dict(part.strip().split(" ", 1) for part in POLICY.split(";"))
    assert directives["default-src"] == directives["base-uri"] == directives["frame-ancestors"] == "'none'"
    assert {directives[name] for name in ("script-src", "style-src", "connect-src", "form-action")} == {
        "'self'"
    }
    assert HEADERS["Content-Security-Policy"] == POLICY
    assert HEADERS["Cache-Control"] == "no-store"


def test_files_of_others_are_those_of_their_packages() -> None:
    locked = tomllib.loads((STATIC / "vendored.toml").read_text())
    ours = {"pages.css", "live.js", "icon.svg", "vendored.toml"}
    assert {entry["file"] for entry in locked.values()} == {path.name for path in STATIC.iterdir()} - ours
    for entry in locked.values():
        assert entry["version"]
        assert entry["licence"]
        assert hashlib.sha256((STATIC / entry["file"]).read_bytes()).hexdigest() == entry["sha256"]
    used = "".join(path.read_text() for path in TEMPLATES)
    assert all(entry["file"] in used for entry in locked.values())


def test_files_are_found_by_the_name_with_their_hash_only() -> None:
    assets = Assets()
    hashed = assets.hashed("pages.css")
    assert re.fullmatch(r"pages\.[0-9a-f]{12}\.css", hashed)
    found = assets.find(hashed)
    assert found is not None
    assert found.media_type == "text/css"
    for name in ("pages.css", "vendored.toml", "../rendering.py"):
        assert assets.find(name) is None


def test_every_address_belongs_to_one_page() -> None:
    keys = [(address.method, address.path) for router in page_routers() for address in router.addresses]
    assert len(keys) == len(set(keys))
    closed = {address.path for router in page_routers() for address in router.addresses if not address.open}
    assert closed.isdisjoint({"/health", "/signin"})


@pytest.mark.parametrize(
    "address", ["", "jobs/12", "jobs?state=Failed&owner=a%20b", "submissions/3", "?before=4"]
)
def test_addresses_of_ours_are_kept_for_after_the_sign_in(address: str) -> None:
    assert _OWN_PAGE.fullmatch(address)


@pytest.mark.parametrize(
    "address",
    [
        "//evil.example",
        "/\\evil",
        "https:evil",
        "javascript:x",
        "jobs/../..",
        "\\evil",
        "jobs\n",
        ".",
        "%2f%2fevil",
    ],
)
def test_no_other_host_can_be_named_for_after_the_sign_in(address: str) -> None:
    assert not _OWN_PAGE.fullmatch(address)


def test_the_parts_of_a_bar_are_all_jobs() -> None:
    bar = bar_of(ROW)
    assert (bar.done, bar.failed, bar.other, bar.running, bar.waiting) == (3, 2, 1, 1, 3)
    assert sum(count for _, count, _, _ in bar.parts) == ROW.count
    assert sum(width for *_, width in bar.parts) == pytest.approx(100)
    assert bar.ended == 6


@pytest.mark.parametrize(
    "given",
    [
        {"owner": "ad&a=?", "state": "Failed"},
        {"ids": "1,2 3"},
        {"submission": "7", "name": "a b", "job_group": "%", "group": "g", "site": "s"},
        {},
    ],
)
def test_a_selection_survives_its_address(given: dict[str, str]) -> None:
    selection = selection_of(given)
    assert selection_of(dict(parse_qsl(query_of(selection)))) == selection
    assert (selection == Selection()) == (not given)


@pytest.mark.parametrize(
    "given", [{"state": "Nothing"}, {"ids": "x"}, {"submission": "-1"}, {"submission": "\u0663"}]
)
def test_a_selection_that_means_nothing_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        selection_of(given)


@pytest.mark.parametrize(
    ("attribute", "value", "before", "after"),
    [
        ("memory", "2000", {"memory": 9000}, {"memory": 2000}),
        ("processors", "2", {"processors": 8, "max_processors": 16}, {"processors": 2}),
        ("tags", "gpu", {"tags": ["gpu", "x"]}, {"tags": ["x"]}),
        ("tags", "big", {"tags": ["x"]}, {"tags": ["x", "big"]}),
        ("sites", "b", {"sites": ["a"]}, {"sites": ["a", "b"]}),
        ("banned_sites", "b", {"banned_sites": ["a", "b"]}, {"banned_sites": ["a"]}),
        ("platforms", "", {"platforms": ["p"]}, {"platforms": []}),
        ("requirements", "", {"requirements": "x"}, {"requirements": ""}),
        ("force_generic", "0", {"force_generic": True}, {"force_generic": False}),
        ("memory", "1", {"after_ok": ["12"], "hold": True}, {"memory": 1}),
    ],
)
def test_a_change_of_why_changes_the_description(
    attribute: str, value: str, before: dict[str, object], after: dict[str, object]
) -> None:
    assert change_description(dict(before), attribute, value) == after


def test_a_changed_job_has_its_values_and_files_and_supersedes_the_old_one() -> None:
    source = SubmissionSource(
        3, "g", {"executable": "x", "memory": 9}, ["", "@job"], [], [JobValues(12, ["v", 5])]
    )
    request = changed_submission(source, Opening("memory", "1", "memory <= 1 MB", 1, {}))
    assert request.description == {"executable": "x", "memory": 1}
    assert request.parameters is not None
    assert request.parameters.rows[0][0] == "v"
    assert request.parameters.rows[0][-1] == 12
    assert request.group == "g"


def test_a_job_with_a_number_of_its_submission_is_not_changed() -> None:
    source = SubmissionSource(
        3, "g", {"executable": "x", "arguments": ["%n"]}, [""], [], [JobValues(12, ["v"])]
    )
    with pytest.raises(InvalidInput, match="%n"):
        changed_submission(source, Opening("memory", "1", "", 1, {}))


def test_output_of_programs_is_shown_without_characters_that_steer_terminals() -> None:
    assert formats.text(b"\x1b[31mred\x1b[0m\a\n\tb\xff") == "red\n\tb\ufffd"


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 bytes"), (1500, "1.5 kB"), (12_000_000, "12 MB"), (10**15, "1,000.0 TB")]
)
def test_sizes(count: int, words: str) -> None:
    assert formats.size(count) == words


def test_states_are_told_by_a_sign_too() -> None:
    assert formats.sign("Done") != formats.sign("Failed")
    assert formats.sign("Skipped") == "■"
    assert formats.sign("Matched") == "◌"
