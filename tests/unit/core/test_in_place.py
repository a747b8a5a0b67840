"""Jobs in place: the fields that they may have, the names of their files, and the folders that they need."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.errors import InvalidInput
from pilotage.core.folders import folder_mistake
from pilotage.core.jobs.in_place import filled_name, folders_of
from pilotage.core.jobs.parsers import parse_yaml_mapping
from pilotage.core.policy import parse
from pilotage.core.policy.default_policy import initial
from pilotage.services.submission.accept import identity_of


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"folder": "scratch"}, "folder"),
        ({"folder": "/scratch/../etc"}, "folder"),
        ({"folder": "/scratch/"}, "folder"),
        ({"folder": "/a\nb"}, "folder"),
        ({"stdout_file": "out"}, "stdout_file"),
        ({"umask": "022"}, "umask"),
        ({"folder": "/a", "stdout_file": "%q"}, "stdout_file"),
        ({"folder": "/a", "stdout_file": "100%"}, "stdout_file"),
        ({"folder": "/a", "stdout_file": "~/out"}, "stdout_file"),
        ({"folder": "/a", "stderr_file": "logs/"}, "stderr_file"),
        ({"folder": "/a", "stderr_file": ".."}, "stderr_file"),
        ({"folder": "/a", "folder_mark": "12"}, "folder_mark"),
        ({"folder": "/a", "umask": "999"}, "umask"),
        ({"folder": "/a", "open_mode": "often"}, "open_mode"),
        ({"folder": "/a", "input_sandbox": ["in.txt"]}, "input_sandbox"),
    ],
)
def test_a_mistake_names_its_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_yaml_mapping({"executable": "a", **fields})
    assert caught.value.field == field


NAMES = st.text("ab%", max_size=4)


@given(NAMES, st.integers(0, 10**6), st.integers(0, 10), NAMES)
def test_a_name_is_filled_as_slurm_fills_it(text: str, job: int, width: int, name: str) -> None:
    plain = text.replace("%", "%%")
    values: dict[str, str | int] = {"j": job, "A": job + 1, "a": 7, "x": name, "u": "ann"}
    filled = filled_name(f"{plain}-%{width}j_%A_%a_%x_%u_%N", values)
    # The node replaces what is left: the host and percent signs.
    on_node = re.sub("%(%|N)", lambda found: "%" if found[1] == "%" else "n1", filled)
    assert on_node == f"{text}-{job:0{width}d}_{job + 1}_7_{name}_ann_n1"


def test_a_pattern_without_a_value_stays() -> None:
    assert filled_name("%3a.%N.%%", {"a": 4}) == "004.%N.%%"


@pytest.mark.parametrize(
    ("files", "needed"),
    [
        ((), {"/w"}),
        (("out", "logs/%x.err"), {"/w"}),
        (("/w/sub/%j", "/dev/null"), {"/w"}),
        (("../logs/%j.out",), {"/w", "/logs"}),
        (("/data/%x/out", "/data/b/%j"), {"/w", "/data", "/data/b"}),
        (("/%x/out",), {"/w", "/"}),
    ],
)
def test_folders_of_files_elsewhere_must_be_shared_too(files: tuple[str, ...], needed: set[str]) -> None:
    assert folders_of("/w", files) == needed
    assert folders_of("", files) == frozenset()


def test_jobs_in_place_have_queues_of_their_own() -> None:
    policy = parse(initial("ada", "here"))
    plain = parse_yaml_mapping({"executable": "a"}).description
    there = parse_yaml_mapping({"executable": "a", "folder": "/w", "folder_mark": "ino:5/6"}).description
    queue = identity_of(there, "ada", "home", policy)
    assert (queue.folders, queue.account) == ({"/w"}, "ada")
    assert identity_of(plain, "ada", "home", policy).account == ""
    assert queue.from_json(queue.to_json()) == queue
    assert "folders" not in identity_of(plain, "ada", "home", policy).to_json()


@pytest.mark.parametrize(
    ("folders", "told"),
    [
        ('["scratch"]', "is not an absolute path"),
        ('["/a/../b"]', "write /b"),
        ('["/a", "/a"]', "names a folder twice"),
    ],
)
def test_the_policy_refuses_folders_that_cannot_be_meant(folders: str, told: str) -> None:
    text = initial("ada", "here").replace('shared_folders = ["/"]', f"shared_folders = {folders}")
    with pytest.raises(InvalidInput, match=told):
        parse(text)


@pytest.mark.parametrize("path", ["/", "/home", "/home/a b"])
def test_normal_folders(path: str) -> None:
    assert not folder_mistake(path)
