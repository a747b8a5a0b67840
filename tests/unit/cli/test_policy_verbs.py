"""`pilotage policy …` against the fake server, and without one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from pilotage.core.policy import parse
from tests.unit.client.fake_server import State

Cli = Callable[..., int]
Captured = pytest.CaptureFixture[str]

POLICY = """\
[groups.lab]
properties = ["NORMAL_USER", "ADMINISTRATOR"]
[users.ada]
groups = ["lab"]
"""
CFG = """\
Registry
{
  Groups
  {
    lab
    {
      JobShare = 10
      Colour = red
    }
  }
}
"""


def document(capsys: Captured) -> Any:
    return json.loads(capsys.readouterr().out)


def test_init_writes_a_policy_that_is_valid_line_by_line(cli: Cli, tmp_path: Path, capsys: Captured) -> None:
    assert cli("policy", "init") == 0
    file = tmp_path / "policy.toml"
    text = file.read_text()
    parse(text)
    assert cli("policy", "init") == 5
    assert "--force" in capsys.readouterr().err
    file.write_text("mine")
    assert cli("policy", "init", "policy.toml") == 5
    assert file.read_text() == "mine"
    assert cli("policy", "init", "--force") == 0
    assert file.read_text() == text
    capsys.readouterr()
    assert cli("policy", "init", "-") == 0
    assert capsys.readouterr().out == text
    assert cli("policy", "init", "-", "--json") == 0
    assert document(capsys) == {"file": None, "text": text}
    for bad in ("no/such/folder", ".", "a\0b"):
        assert cli("policy", "init", bad, "--force") == 2
        assert "cannot write" in capsys.readouterr().err


def test_a_preset_is_printed_alone_and_into_a_policy(cli: Cli, tmp_path: Path, capsys: Captured) -> None:
    assert cli("policy", "preset") == 0
    assert "dirac" in capsys.readouterr().out
    assert cli("policy", "preset", "dirac") == 0
    assert parse(POLICY + capsys.readouterr().out).matching.rule == "dirac"
    assert cli("policy", "init", "p.toml") == 0
    capsys.readouterr()
    assert cli("policy", "preset", "dirac", "p.toml") == 0
    policy = parse(capsys.readouterr().out)
    assert (policy.matching.rule, policy.director.demand) == ("dirac", "dirac")
    assert [instance.settings.form for instance in cast(Any, policy.correction.instances)] == ["ratio"]
    assert cli("policy", "preset", "dirac", "p.toml", "--json") == 0
    assert document(capsys)["name"] == "dirac"
    assert cli("policy", "preset", "dirk") == 2
    assert "known: dirac" in capsys.readouterr().err
    (tmp_path / "bad.toml").write_text("[groups")
    assert cli("policy", "preset", "dirac", "bad.toml") == 2


def test_check_offline_needs_no_server(cli: Cli, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "p.toml"
    file.write_text(POLICY)
    assert cli("policy", "check", "p.toml") == 6
    assert "--offline" in capsys.readouterr().err
    assert cli("policy", "check", "--offline", "p.toml") == 0
    captured = capsys.readouterr()
    assert captured.out == "p.toml is a valid policy\n"
    assert "note: rule proportional" in captured.err
    assert cli("policy", "check", "--offline", "--json", "p.toml") == 0
    told = document(capsys)
    assert told["version"] is None
    assert told["warnings"] == []
    assert len(told["properties"]) == 2
    file.write_text(POLICY.replace("ADMINISTRATOR", "GENERIC_PILOT"))
    assert cli("policy", "check", "--offline", "p.toml") == 0
    err = capsys.readouterr().err
    assert "warning: no user is in a group with ADMINISTRATOR" in err
    assert "GENERIC_PILOT (lab) is stored for the director" in err
    file.write_text(POLICY + "[jbos]\n")
    assert cli("policy", "check", "--offline", "p.toml") == 2
    assert "line 5: unknown key jbos" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["nothing", ".", "binary", "a\0b", ""])
def test_files_that_cannot_be_read(cli: Cli, tmp_path: Path, capsys: Captured, name: str) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\0")
    for verb in (["check", "--offline"], ["apply"], ["import"], ["diff", "./x"]):
        assert cli("policy", *verb, name) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert len(captured.err.splitlines()) <= 2


def test_a_policy_that_no_server_takes_is_refused_before_it_is_sent(
    cli: Cli, tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "p.toml").write_text(POLICY + "#" * 1_000_000)
    for words in (("check",), ("check", "--offline"), ("apply",)):
        assert cli("policy", *words, "p.toml") == 2
        assert "characters; a policy has at most 1,000,000" in capsys.readouterr().err


def test_check_and_apply_tell_what_is_stranded(
    cli: Cli, state: State, tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "p.toml").write_text(POLICY)
    state.left = {
        "warnings": ["w\x1b[2J"],
        "properties": ["rule x"],
        "stranded": [
            {"group": "old", "owner": "", "waiting": 1200},
            {"group": "lab", "owner": "bob", "waiting": 1},
        ],
        "stranded_jobs": 1300,
        "pilots_left": [{"site": "here", "ce": "gone", "pilots": 2}],
    }
    assert cli("policy", "check", "p.toml") == 0
    err = capsys.readouterr().err
    assert (
        "warning: 1,200 waiting jobs of group old would not start (there is no such group), but stay" in err
    )
    assert "warning: 1 waiting job of bob in group lab would not start (the user is not in it)" in err
    assert "99 more" in err
    assert "live pilots at here, CE gone, which is not in the policy: 2;" in err
    assert "note: rule x" in err
    assert "\x1b" not in err
    assert cli("policy", "apply", "p.toml", "--reason", "why", "--expect", "3") == 0
    assert "do not start" in capsys.readouterr().err
    assert [(one["dry_run"], one["reason"], one["expect"]) for one in state.seen] == [
        (True, "", None),
        (False, "why", 3),
    ]
    assert cli("policy", "check", "--json", "p.toml") == 0
    told = document(capsys)
    assert told["stranded"] == state.left["stranded"]
    assert told["pilots_left"] == state.left["pilots_left"]


def test_a_policy_that_another_has_changed(cli: Cli, state: State, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "p.toml").write_text(POLICY)
    state.failures = [(409, {"code": "conflict", "message": "version 4 is in force, not 3", "hint": "h"})]
    assert cli("policy", "apply", "p.toml", "--expect", "3") == 5
    assert "version 4 is in force" in capsys.readouterr().err
    for bad in ("0", "-1", "x", "1.5", "9" * 30):
        assert cli("policy", "apply", "p.toml", "--expect", bad) == 2


def test_history_is_fetched_page_by_page(cli: Cli, state: State, capsys: Captured) -> None:
    state.policies = [f"# {number}\n" for number in range(1, 8)]
    state.page = 3
    assert cli("policy", "history") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "version\tapplied\tby\treason"
    assert [line.split("\t")[0] for line in lines[1:]] == ["7", "6", "5", "4", "3", "2", "1"]
    assert cli("policy", "history", "--json", "--limit", "2") == 0
    assert [one["version"] for one in document(capsys)["versions"]] == [7, 6]
    assert cli("policy", "history", "--limit", "0") == 0
    assert len(capsys.readouterr().out.splitlines()) == 8
    assert cli("policy", "history", "--limit", "-1") == 2


def test_show_an_earlier_version(cli: Cli, state: State, capsys: Captured) -> None:
    assert cli("policy", "show", "--version", "1") == 0
    assert capsys.readouterr().out == "# one\n"
    assert cli("policy", "show", "--version", "9") == 4


def test_rollback(cli: Cli, state: State, capsys: Captured) -> None:
    assert cli("policy", "rollback", "1", "--reason", "oops") == 0
    assert state.seen == [{"version": 1, "reason": "oops", "expect": None}]
    assert "version 1 is in force again" in capsys.readouterr().out
    assert cli("policy", "rollback", "9") == 4
    for bad in ([], ["0"], ["x"], ["9" * 30], ["1", "2"]):
        assert cli("policy", "rollback", *bad) == 2


def test_diff(cli: Cli, state: State, tmp_path: Path, capsys: Captured) -> None:
    state.policies = ["[groups.a]\nshare = 1\n", "[groups.a]\nshare = 2\n", "[groups.b]\n"]
    (tmp_path / "p.toml").write_text("[groups.b]\nshare = 9\n")
    (tmp_path / "3").write_text("[groups.c]\n")

    def told(*words: str) -> list[str]:
        assert cli("policy", "diff", *words) == 0
        return capsys.readouterr().out.splitlines()

    assert told()[:2] == ["--- version 2", "+++ version 3"]
    assert told("1")[:2] == ["--- version 3 (in force)", "+++ version 1"]
    assert told("p.toml") == [
        "--- version 3 (in force)", "+++ p.toml", "@@ -1 +1,2 @@", " [groups.b]", "+share = 9",
    ]  # fmt: skip
    assert told("1", "2")[-2:] == ["-share = 1", "+share = 2"]
    assert told("1", "p.toml")[:2] == ["--- version 1", "+++ p.toml"]
    assert told("./3", "3")[:2] == ["--- ./3", "+++ version 3"]
    assert told("3") == told("2", "2") == []
    assert cli("policy", "diff", "1", "2", "--exit-code") == 1
    assert cli("policy", "diff", "2", "2", "--exit-code") == 0
    for words, code in ((["9"], 4), (["9" * 40], 4), (["0"], 4), (["1", "2", "3"], 2), (["-1"], 2)):
        assert cli("policy", "diff", *words) == code, words
    state.policies = ["# only\n"]
    assert cli("policy", "diff") == 4


def test_diff_as_json_is_key_by_key(cli: Cli, state: State, tmp_path: Path, capsys: Captured) -> None:
    state.policies = ["[groups.a]\nshare = 1\nvo = 'x'\n", "[groups.a]\nshare = 2\n[sites.'b c']\n"]
    assert cli("policy", "diff", "--json") == 0
    told = document(capsys)
    assert (told["before"], told["after"], told["same"]) == ("version 1", "version 2", False)
    assert told["changes"] == [
        {"key": "groups.a.share", "change": "changed", "before": 1, "after": 2},
        {"key": "groups.a.vo", "change": "removed", "before": "x", "after": None},
        {"key": 'sites."b c"', "change": "added", "before": None, "after": {}},
    ]
    (tmp_path / "bad").write_text("x = \n")
    assert cli("policy", "diff", "--json", "bad") == 2
    assert "line 1, column 5: bad: the policy is not valid TOML" in capsys.readouterr().err
    assert cli("policy", "diff", "bad") == 0


def test_files_are_compared_without_a_server(cli: Cli, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "a").write_text(POLICY)
    (tmp_path / "b").write_text(POLICY)
    assert cli("policy", "diff", "a", "b", "--exit-code") == 0
    assert cli("policy", "diff", "a") == 6


def test_import(cli: Cli, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "d.cfg").write_text(CFG)
    assert cli("policy", "import", "d.cfg") == 0
    captured = capsys.readouterr()
    assert parse(captured.out).groups["lab"].share == 10
    assert "not converted: line 8: Registry/Groups/lab/Colour (red): unknown option" in captured.err
    assert "warning: no user is in a group with ADMINISTRATOR" in captured.err
    assert cli("policy", "import", "d.cfg", "-o", "p.toml") == 0
    assert "p.toml: 1 group," in capsys.readouterr().out
    assert (tmp_path / "p.toml").read_text() == captured.out
    assert cli("policy", "import", "d.cfg", "-o", "p.toml") == 5
    assert cli("policy", "import", "d.cfg", "-o", "p.toml", "--force") == 0
    capsys.readouterr()
    assert cli("policy", "import", "d.cfg", "--json") == 0
    told = document(capsys)
    assert told["text"] == captured.out
    assert told["left"] == [
        {"path": "Registry/Groups/lab/Colour", "value": "red", "line": 8, "reason": "unknown option"}
    ]


def test_the_mark_that_some_editors_put_before_a_text(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "d.cfg").write_text(CFG, encoding="utf-8-sig")
    (tmp_path / "p.toml").write_text(POLICY, encoding="utf-8-sig")
    assert cli("policy", "import", "d.cfg") == 0
    assert cli("policy", "check", "--offline", "p.toml") == 0


def test_without_diraccfg(
    cli: Cli, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d.cfg").write_text(CFG)
    monkeypatch.setitem(sys.modules, "diraccfg", None)
    assert cli("policy", "import", "d.cfg") == 2
    assert "pip install 'pilotage[dirac]'" in capsys.readouterr().err


def test_long_lists_are_cut_on_the_screen_only(cli: Cli, tmp_path: Path, capsys: Captured) -> None:
    many = "".join(f"      O{number} = x\n" for number in range(150))
    (tmp_path / "d.cfg").write_text(CFG.replace("      Colour = red\n", many))
    assert cli("policy", "import", "d.cfg") == 0
    err = capsys.readouterr().err
    assert err.count("not converted: line") == 100
    assert "50 more; --json" in err
    assert cli("policy", "import", "d.cfg", "--json") == 0
    assert len(document(capsys)["left"]) == 150


def test_imports_that_are_refused(cli: Cli, tmp_path: Path, capsys: Captured) -> None:
    for text, wanted in (
        ("", "the DIRAC configuration is empty"),
        (CFG + "}\n", "line 12: } without an open section"),
        (CFG.removesuffix("}\n"), "line 1: section Registry is never closed"),
        (CFG.replace("= 10", "= ten"), "line 7: Registry/Groups/lab/JobShare must be a number"),
    ):
        (tmp_path / "d.cfg").write_text(text)
        assert cli("policy", "import", "d.cfg") == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith(f"pilotage: {wanted}")
    assert cli("policy", "import", "d.cfg", "--section", "Nowhere") == 2
    assert cli("policy", "import") == 2
