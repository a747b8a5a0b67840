"""The rule of several servers, held over all SQL texts of the store and all places that call them.

`tests/decision_guard.py` holds it over the statements that the suite executes on PostgreSQL. A function of the store
locks rows of one table, so the order of two tables is not seen here: `tests/lock_order.py` finds it in all kinds of
transactions.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pilotage
import pilotage.store.cluster
import pilotage.store.tables
from pilotage.store.engine.bulk_statements import BulkStatement, RowWriter
from pilotage.store.engine.decisions import GUARDS, MARKS, UNCHANGING, Mark
from pilotage.store.schema import metadata
from tests.decision_guard import parsed, problem

ROOT = Path(pilotage.__file__).parent
LOCK = re.compile(r" ?FOR (?:NO KEY UPDATE|UPDATE|KEY SHARE|SHARE)(?: OF \w+)?(?: SKIP LOCKED| NOWAIT)?")
_STATEMENT = re.compile(r"(SELECT|UPDATE|DELETE|WITH)\b")
MOST_WORDS = 25


class StoreFunction(NamedTuple):
    """A function of the store, with its SQL. A value that is only known at run time stands there as `@`."""

    name: str
    function: Callable[..., Any]
    source: str
    texts: tuple[str, ...]

    @property
    def mark(self) -> Mark | None:
        return MARKS.get(self.function.__code__)


@cache
def store_functions() -> tuple[StoreFunction, ...]:
    return tuple(
        function
        for package in (pilotage.store.tables, pilotage.store.cluster)
        for info in pkgutil.iter_modules(package.__path__)
        for function in _functions_of(importlib.import_module(f"{package.__name__}.{info.name}"))
    )


def _functions_of(module: ModuleType) -> Iterator[StoreFunction]:
    for name, function in vars(module).items():
        if inspect.isfunction(function) and function.__module__ == module.__name__:
            source = inspect.getsource(function)
            short = f"{module.__name__.rpartition('.')[2]}.{name}"
            yield StoreFunction(short, function, source, tuple(_texts(source, vars(module))))


def _texts(source: str, names: Mapping[str, Any]) -> Iterator[str]:
    """The statements of a function: its own texts, and the module's that it names."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr | ast.Constant | ast.BinOp):
            text = _text(node, names)
            if _STATEMENT.match(text):
                yield text
        elif isinstance(node, ast.Name):
            value = names.get(node.id)
            bulk = value._statement if isinstance(value, RowWriter) else value
            if isinstance(bulk, BulkStatement):
                yield bulk.postgresql
            elif isinstance(value, str) and _STATEMENT.match(value):
                yield value


def _text(node: ast.AST, names: Mapping[str, Any]) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(value, names) for value in values)
        case ast.FormattedValue(value=ast.Call() as call):
            return _text(call, names)
        case ast.FormattedValue(value=ast.Name(id=name)):
            value = names.get(name)
            return value if isinstance(value, str) else "@"
        case ast.Call(func=ast.Name(id="lock_clause"), args=[_, how]):
            return f" FOR {_text(how, names)}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left, names) + _text(right, names)
        case ast.Name(id=name) if isinstance(names.get(name), str):
            return str(names[name])
    return "@"


def locking() -> list[StoreFunction]:
    return [function for function in store_functions() if "lock_clause(" in function.source]


def test_functions_of_the_store_have_been_read() -> None:
    assert len(store_functions()) > 500
    assert len(locking()) > 30


def test_each_guard_is_a_table() -> None:
    named = {*GUARDS, *UNCHANGING, *(guard for guards in GUARDS.values() for guard in guards)}
    assert named <= set(metadata.tables)
    assert not UNCHANGING & set(GUARDS)


def test_each_mark_says_why_in_a_few_words() -> None:
    for function in store_functions():
        mark = function.mark
        if mark is not None:
            assert bool(mark.why) != bool(mark.columns), function.name
            assert len(mark.why.split()) <= MOST_WORDS, function.name


def test_each_lock_is_needed_by_the_rule() -> None:
    """Without its lock, each function that locks rows breaks the rule."""
    for function in locking():
        if function.mark is not None:
            continue
        locked = [text for text in function.texts if LOCK.search(text)]
        for text in locked:
            statement = parsed(LOCK.sub("", text))
            if statement.table:
                assert problem(statement, set(), []), f"{function.name}: {text}"


def test_rows_are_locked_in_the_order_of_their_keys() -> None:
    """Two servers that lock the same rows in two orders wait for each other until one of them is stopped."""
    for function in locking():
        is_ordered = "ORDER BY" in function.source or "SKIP LOCKED" in function.source
        is_single = "fetchone" in function.source or "_one(" in function.source or "lock_row" in function.name
        assert is_ordered or is_single, function.name


def lacking_columns(function: StoreFunction, texts: tuple[str, ...]) -> set[str]:
    """The columns of the mark that no `WHERE` of the changes names."""
    assert function.mark is not None
    conditions = " ".join(text.partition(" WHERE ")[2] for text in texts if not text.startswith("SELECT"))
    return {column for column in function.mark.columns if not re.search(rf"\b{column}\b", conditions)}


def guarded_functions() -> list[StoreFunction]:
    return [f for f in store_functions() if f.mark is not None and f.mark.kind == "guarded"]


def test_a_guarded_change_carries_the_decided_state_in_its_condition() -> None:
    assert guarded_functions()
    for function in guarded_functions():
        assert not lacking_columns(function, function.texts), function.name
        assert inspect.signature(function.function).return_annotation != "None", function.name


def test_a_condition_that_is_taken_out_is_missed() -> None:
    for function in guarded_functions():
        without = tuple(text.partition(" WHERE ")[0] for text in function.texts)
        assert lacking_columns(function, without), function.name


def calls_of_product() -> Iterator[tuple[Path, ast.AST, str]]:
    """(file, statement, name with its module) of each call of a function of the store."""
    for file in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(file.read_text())
        imported = {
            alias.asname or alias.name: f"{node.module}.{alias.name}".rpartition("store.")[2].partition(".")[
                2
            ]
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pilotage.store.")
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                name = _called(node.value.func, imported)
                if name:
                    yield file, node, name


def _called(function: ast.expr, imported: Mapping[str, str]) -> str:
    match function:
        case ast.Attribute(value=ast.Name(id=module), attr=name) if module in imported:
            return f"{imported[module]}.{name}"
        case ast.Name(id=name) if name in imported:
            return imported[name]
    return ""


def test_who_changes_rows_under_a_condition_looks_at_the_number_of_rows() -> None:
    guarded = {function.name for function in guarded_functions()}
    for file, node, name in calls_of_product():
        assert name not in guarded, f"{file.relative_to(ROOT)}:{node.lineno} ignores the answer of {name}"  # type: ignore[attr-defined]


def test_nobody_changes_rows_of_an_unchanging_table() -> None:
    for function in store_functions():
        for text in function.texts:
            for table in UNCHANGING:
                assert not re.search(rf"\bUPDATE {table} SET\b", text), function.name
