"""`Executor(results="data")`: plain data and arrays come back, and nothing from a node runs code here."""

from __future__ import annotations

import collections
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage import Executor
from pilotage.client.executor import payload
from pilotage.client.executor.calls import CallFuture, PendingCall
from pilotage.client.executor.node_program import HEADER, RAISED, RETURNED, UNUSABLE, _dump_plain
from pilotage.client.executor.outcomes import (
    RemoteTraceback,
    ResultNotPicklable,
    settle,
)
from pilotage.client.executor.pickling import pickle_arguments, pickle_function
from pilotage.client.executor.plain_data import CallRaised, read_plain
from pilotage.client.executor.result_files import ResultFile, ResultFrame
from pilotage.core.errors import InvalidInput

ATOMS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
HASHABLE = st.recursive(
    ATOMS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5
)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: (
        st.lists(inner) | st.dictionaries(HASHABLE, inner, max_size=4) | st.sets(HASHABLE, max_size=4)
    ),
    max_leaves=10,
)


class Hostile:
    """Its pickle makes a folder where it is read."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (self.folder,)


def future() -> CallFuture[Any]:
    return CallFuture(lambda job: "", lambda call: None)


def outcome(kind: int, body: bytes) -> CallFuture[Any]:
    one = future()
    settle(one, ResultFrame(kind, 0.1, lambda: body), data=True)
    return one


@given(VALUES)
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    back = read_plain(_dump_plain(value))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("kind", ["?", "i2", ">f8", "c16", "U5", "M8[s]", [("a", "i4"), ("b", "f4", (2,))]])
def test_arrays_and_their_numbers_come_back(kind: Any) -> None:
    array = numpy.zeros((2, 3), dtype=kind)
    back = read_plain(_dump_plain({"a": [array, array[0, 0], array[:0]]}))["a"]
    for got, sent in zip(back, [array, array[0, 0], array[:0]], strict=True):
        assert (got.dtype, got.shape) == (sent.dtype, sent.shape)
        assert numpy.all(got == sent)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        collections.OrderedDict(),
        Path("x"),
        len,
        int,
        1j,
        numpy.array([{}], dtype=object),
        numpy.ma.masked_array([1]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_results_are_refused_on_the_node(value: object) -> None:
    with pytest.raises((pickle.PicklingError, ValueError)):
        _dump_plain([value])


@pytest.mark.parametrize("kind", [RETURNED, RAISED, UNUSABLE, 7])
@pytest.mark.parametrize("dump", [pickle.dumps, cloudpickle.dumps])
def test_no_code_of_a_node_runs_here(tmp_path: Path, kind: int, dump: Any) -> None:
    for number, wrap in enumerate(
        (lambda it: it, lambda it: (it, "text"), lambda it: ("text", it), lambda it: [{1: it}])
    ):
        folder = tmp_path / str(number)
        body = dump(wrap(Hostile(str(folder))))  # type: ignore[no-untyped-call]
        assert isinstance(outcome(kind, body).exception(), ResultNotPicklable)
        assert not folder.exists()
        pickle.loads(body)
        assert folder.exists(), "it is hostile"


def test_an_array_of_a_node_is_read_without_pickle(tmp_path: Path) -> None:
    numpy.save(tmp_path / "a.npy", numpy.array([Hostile(str(tmp_path / "made"))], dtype=object))
    content = (tmp_path / "a.npy").read_bytes()

    class Sender(pickle._Pickler):
        def persistent_id(self, thing: Any) -> Any:
            return thing if isinstance(thing, tuple) and thing[1:] else None

    for given_array in ((False, content), (True, b""), ("no", content), (False, 7)):
        with (tmp_path / "body").open("wb") as file:
            Sender(file, 4).dump([given_array])
        assert isinstance(outcome(RETURNED, (tmp_path / "body").read_bytes()).exception(), ResultNotPicklable)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "body", [b"", b"\x80", b"junk", pickle.dumps(7), pickle.dumps((1, 2, 3)), pickle.dumps(("a", 7))]
)
@pytest.mark.parametrize("kind", [RAISED, UNUSABLE])
def test_an_outcome_of_another_shape_is_an_error_of_the_call(kind: int, body: bytes) -> None:
    assert isinstance(outcome(kind, body).exception(), ResultNotPicklable | CallRaised)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0])
def test_a_time_that_is_none_is_not_measured(tmp_path: Path, seconds: float) -> None:
    (tmp_path / "results").write_bytes(HEADER.pack(RETURNED, seconds, 0))
    [frame] = ResultFile(tmp_path / "results").frames()
    assert frame.seconds == 0


def test_the_program_sends_plain_data_and_texts_of_errors(tmp_path: Path) -> None:
    def fails() -> None:
        raise LookupError("no such run")

    functions = (lambda: {"a": [1, 2.5]}, fails, lambda: Path("x"))
    chunk = [
        PendingCall(pickle_function(one), pickle_arguments("f", (), {}), "", 0, future()) for one in functions
    ]
    folder = tmp_path / "p"
    payload.write_payload(folder, [chunk], {}, data=True)
    subprocess.run([sys.executable, "-I", "-S", payload.PROGRAM, payload.PYTHON, "0"], cwd=folder, check=True)
    good, failed, odd = [
        outcome(frame.kind, frame.read()) for frame in ResultFile(folder / payload.RESULTS).frames()
    ]
    assert good.result() == {"a": [1, 2.5]}
    error = failed.exception()
    assert isinstance(error, CallRaised)
    assert str(error) == "LookupError: no such run"
    assert isinstance(error.__cause__, RemoteTraceback)
    assert "in fails" in error.__cause__.text
    with pytest.raises(ResultNotPicklable, match="PosixPath is no plain data"):
        odd.result()


def test_other_kinds_of_results_are_refused() -> None:
    with pytest.raises(InvalidInput, match="any"):
        Executor(results="json")  # type: ignore[arg-type]
