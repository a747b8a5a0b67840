"""Manifests in each format, with the line and field of every mistake."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.datasets.arrangement import by_folder, common_folder, in_sizes
from pilotage.core.datasets.document import lines_of
from pilotage.core.datasets.facts import BlockEntry, FileEntry, Replica, check_data_set_name, common_sites
from pilotage.core.datasets.manifest import Manifest, parse_manifest
from pilotage.core.errors import InvalidInput, Mistakes

FULL = {
    "name": "/cosmics/2026/RAW",
    "replicas": {"cellar": "/data/", "attic": "root://attic//store"},
    "closed": True,
    "events_per_file": 7,
    "blocks": [
        {
            "name": "run1",
            "replicas": {"cellar": "/other"},
            "files": [
                {"name": "a.root", "size": 5, "events": 3, "checksum": "ADLER32:0a1b2c3D",
                 "lumis": [[1, 5, 9], [1, 1, 4]]},
                "b.root",
            ],
        },
    ],
    "files": [{"name": "run2/c.root", "block": "run2"}, "run3/d.root"],
}  # fmt: skip
READ = Manifest(
    name="/cosmics/2026/RAW",
    replicas=(Replica("attic", "root://attic//store"), Replica("cellar", "/data")),
    closed=True,
    blocks=(
        BlockEntry(
            "run1",
            (
                FileEntry("a.root", 5, 3, "adler32:0a1b2c3d", ((1, 1, 4), (1, 5, 9))),
                FileEntry("b.root", events=7),
            ),
            (Replica("cellar", "/other"),),
        ),
        BlockEntry("run2", (FileEntry("run2/c.root", events=7),)),
    ),
    loose=(FileEntry("run3/d.root", events=7),),
)
TOML = """\
name = "/cosmics/2026/RAW"
closed = true
events_per_file = 7
replicas = {cellar = "/data/", attic = "root://attic//store"}
files = [{name = "run2/c.root", block = "run2"}, "run3/d.root"]
[[blocks]]
name = "run1"
replicas.cellar = "/other"
[[blocks.files]]
name = "a.root"
size = 5
events = 3
checksum = "ADLER32:0a1b2c3D"
lumis = [[1, 5, 9], [1, 1, 4]]
[[blocks.files]]
name = "b.root"
"""


@pytest.mark.parametrize(
    ("kind", "text"), [("json", json.dumps(FULL)), ("yaml", yaml.safe_dump(FULL)), ("toml", TOML)]
)
def test_each_format_says_the_same(kind: str, text: str) -> None:
    assert parse_manifest(text, kind) == READ


def test_json_lines_and_plain_lists_have_a_file_a_line() -> None:
    lines = '{"name": "x/a", "size": 1}\n\n{"name": "y/b", "block": "other"}\n"c"\n'
    assert parse_manifest(lines, "jsonl") == Manifest(
        blocks=(BlockEntry("other", (FileEntry("y/b"),)),), loose=(FileEntry("x/a", 1), FileEntry("c"))
    )
    listed = parse_manifest("# produced today\n/data/run1/a\n\n  /data/run2/b  \n", "list")
    assert listed == Manifest(prefix="/data", loose=(FileEntry("run1/a"), FileEntry("run2/b")))
    assert parse_manifest("run1/a\nb\n", "list").prefix is None
    assert parse_manifest("https://web/x/a\nhttps://web/x/b\n", "list").prefix == "https://web/x"


MISTAKES = [
    ("json", '{"files": [\n{"name": "a",\n"size": -1}]}', "line 3: files.0.size: it must not be negative"),
    ("yaml", "files:\n- a\n- name: a\n", "line 3: files.1.name: 'a' is listed twice; first as files.0"),
    ("toml", '[[files]]\nname = "a"\n[[files]]\nnam = "b"\n', "line 4: files.1.nam: unknown key (did you mean name?)"),
    ("toml", '[[files]]\nname = "a"\nevents = 1.5\n', "line 3: files.0.events: it must be a whole number"),
    ("yaml", "files:\n- name: a\n  lumis: [[1, 5, 4]]\n", "line 3: files.0.lumis: the records: [1, 5, 4] ends before"),
    ("yaml", "files:\n- name: a\n  lumis: [[1, 1, 4], [1, 4, 5]]\n", "[1, 1, 4] and [1, 4, 5] overlap"),
    ("yaml", "files:\n- name: a\n  checksum: adler32:xyz\n", "line 3: files.0.checksum: it must be ALGORITHM:HEX"),
    ("yaml", "files:\n- /a/b\n", "line 2: files.0.name: the name '/a/b' must be relative"),
    ("yaml", "files:\n- a/../../b\n", "must be relative, without .."),
    ("yaml", 'files:\n- "a\\nb"\n', "contains characters that cannot be printed"),
    ("yaml", "replicas:\n  here: data\nfiles: [a]\n", "line 2: replicas.here: here: the prefix 'data' is neither"),
    ("yaml", "name: a b\nfiles: [a]\n", "line 1: name: 'a b' cannot be the name of a data set"),
    ("yaml", "blocks:\n- files: [a]\n", "line 2: blocks.0: the name of the block is missing"),
    ("yaml", "blocks:\n- name: a\n- name: a\n", "line 3: blocks.1.name: the block 'a' is given twice"),
    ("yaml", "name: x\n", "the manifest lists no files"),
    ("jsonl", '"a"\n\n{"name": "a"}\n', "line 3: name: 'a' is listed twice; first as line 1"),
    ("json", '{"files": [{"name": "a", "\\ud800": 1}]}', "files.0.\\ud800: unknown key"),
    ("json", '{"files": ["\\ud800"]}', "contains characters that cannot be printed"),
    ("json", '{"\\ud800": 1, "\\ud800": 2}', "is given twice"),
    ("jsonl", '"a"\n{"name": \n', "line 2, column 10: invalid JSON"),
    ("jsonl", '{"name": "a", "size": 99999999999999999999}\n', "line 1: size: it must not be greater than 1,125,899"),
    ("list", "/a/b\n/a/b\n", "line 2: '/a/b' is listed twice; first in line 1"),
    ("list", "/a/b\nc\n", "line 2: 'c' is relative, but other lines are absolute"),
    ("list", "a\n../b\n", "line 2: the name '../b' must be relative"),
    ("list", "# nothing\n", "line 1: the manifest lists no files"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "message"), MISTAKES, ids=[kind for kind, _, _ in MISTAKES])
def test_a_mistake_has_its_line_and_field(kind: str, text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_manifest(text, kind)
    assert message in str(caught.value)
    f"{caught.value} {caught.value.field}".encode()


def test_mistakes_are_reported_together_up_to_a_limit() -> None:
    with pytest.raises(Mistakes) as caught:
        parse_manifest("files:\n- {name: a, size: -1, events: x}\n- {nme: b}\n", "yaml")
    assert [(error.line, error.field) for error in caught.value.all] == [
        (2, "files.0.size"), (2, "files.0.events"), (3, "files.1.nme"), (3, "files.1"),
    ]  # fmt: skip
    with pytest.raises(Mistakes) as many:
        parse_manifest(json.dumps({"files": [{"name": f"f{n}", "size": -1} for n in range(100_000)]}), "json")
    assert len(many.value.all) == 51


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "b,c", "\n", '"', "é"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4), max_leaves=20,
))  # fmt: skip
def test_lines_of_json_and_yaml_are_those_of_the_values(value: object) -> None:
    document = {"a": 1, "value": value, "zz": {"last": -1}}
    texts = {"json": json.dumps(document, indent=1), "yaml": yaml.safe_dump(document)}
    for kind, text in texts.items():
        line = next(
            n for n, part in enumerate(text.split("\n"), 1) if part.strip().strip('"').startswith("last")
        )
        assert lines_of(text, kind, [("zz", "last")]) == {("zz", "last"): line}


def test_files_are_arranged_by_folder_and_cut() -> None:
    files = [FileEntry(name) for name in ("b/2", "a/x/1", "b/1", "top", "b/3")]
    blocks = list(in_sizes(by_folder(files), 2))
    assert [(block.name, [file.name for file in block.files]) for block in blocks] == [
        (".", ["top"]), ("a/x", ["a/x/1"]), ("b", ["b/1", "b/2"]), ("b", ["b/3"]),
    ]  # fmt: skip
    assert [block.name for block in by_folder(files, depth=1)] == [".", "a", "b"]


def test_the_common_folder_ends_at_a_slash() -> None:
    assert common_folder(["/a/bc/x", "/a/bd/y"]) == "/a"
    assert common_folder(["/a/b/x"]) == "/a/b"
    assert common_folder(["/x", "/y"]) == ""


def test_sites_common_to_blocks_are_unknown_if_those_of_one_are() -> None:
    assert common_sites([("a", "b"), ("b", "c")]) == ("b",)
    assert common_sites([("a",), ("b",)]) == ()
    assert common_sites([("a",), None]) is None
    assert common_sites([("*",), ("a",)]) == ("a",)
    assert common_sites([("*",)]) == ("*",)
    assert common_sites([]) is None


@pytest.mark.parametrize("name", ["", "a b", "a#b", "-a", "a\n", "é", "x" * 256, "a%", "a?b"])
def test_odd_names_of_data_sets_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        check_data_set_name(name)
