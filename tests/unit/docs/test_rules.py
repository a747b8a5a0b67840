"""docs/reference/rules.md names code and tests that exist, and its examples print the results of the code."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "rules.md"
TEXT = PAGE.read_text(encoding="utf-8")

HEADING = re.compile(r"^### (\d+\.\d+) .+$", re.MULTILINE)
SECTION = re.compile(r"^## (\d+) .+$", re.MULTILINE)
LINK = re.compile(r"\[`([\w.]+)`\]\(([^)\s]+\.py)\)")
EXAMPLE = re.compile(r"^```pycon\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MENTION = re.compile(r"docs/reference/rules\.md,?\s+sections?\s+(\d+)(?:\s+and\s+(\d+))?")


class Rule(NamedTuple):
    """One rule of the page: its number, the names that it links (name, file), and its examples."""

    number: str
    links: list[tuple[str, Path]]
    examples: list[str]


def rules_of(text: str) -> list[Rule]:
    marks = list(HEADING.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    parts = [(mark[1], text[mark.end() : end]) for mark, end in zip(marks, ends, strict=True)]
    return [
        Rule(
            number,
            [(name, (PAGE.parent / target).resolve()) for name, target in LINK.findall(part)],
            EXAMPLE.findall(part),
        )
        for number, part in parts
    ]


RULES = rules_of(TEXT)


def names_in(body: list[ast.stmt], before: str = "") -> Iterator[str]:
    """The functions, classes, methods and assigned names of a module, with dots."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield before + node.name
        elif isinstance(node, ast.ClassDef):
            yield before + node.name
            yield from names_in(node.body, f"{before}{node.name}.")
        elif isinstance(node, ast.Assign):
            yield from (before + target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield before + node.target.id


def missing(links: list[tuple[str, Path]]) -> list[str]:
    """The linked names that their files do not define."""
    return [
        f"{name} in {file}"
        for name, file in links
        if not file.is_file() or name not in set(names_in(ast.parse(file.read_text()).body))
    ]


def namespace(rule: Rule) -> dict[str, Any]:
    """Names for the examples of a rule: the code that the rule links."""
    found: dict[str, Any] = {}
    for name, file in rule.links:
        if ROOT / "src" in file.parents and "." not in name:
            module = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts)
            found[name] = getattr(importlib.import_module(module), name)
    return found


def failures_of(rule: Rule) -> str:
    """The differences between the examples of a rule and their output; "" if all is well."""
    told: list[str] = []
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(verbose=False)
    for place, example in enumerate(rule.examples):
        test = parser.get_doctest(example, namespace(rule), f"rule {rule.number}, {place}", str(PAGE), 0)
        runner.run(test, out=told.append)
    return "".join(told)


def test_all_rules_are_found() -> None:
    sections = SECTION.findall(TEXT)
    assert sections == [str(number) for number in range(1, len(sections) + 1)]
    assert {rule.number.partition(".")[0] for rule in RULES} == set(sections)
    assert len(RULES) == TEXT.count("\n### ")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.number)
def test_a_rule_names_its_code_and_its_tests(rule: Rule) -> None:
    assert not missing(rule.links)
    assert any(ROOT / "src" in file.parents for _, file in rule.links), "no code"
    assert any(ROOT / "tests" in file.parents and name.startswith("test_") for name, file in rule.links)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.examples], ids=lambda rule: rule.number)
def test_the_examples_are_what_the_code_gives(rule: Rule) -> None:
    assert failures_of(rule) == ""


def sources() -> Iterator[Path]:
    for folder in ("src", "tests", "docs", "benchmarks", "scripts"):
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in (".py", ".md", ".sh", ".toml") and file != Path(__file__):
                yield file


def test_the_code_refers_to_sections_that_are_there() -> None:
    known, seen = set(SECTION.findall(TEXT)), 0
    for file in sources():
        for mention in MENTION.finditer(file.read_text(encoding="utf-8")):
            seen += 1
            assert set(filter(None, mention.groups())) <= known, f"{file}: {mention[0]}"
    assert seen > 10
