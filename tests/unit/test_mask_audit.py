"""The audit of requests finds what it is there to find."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.mask_audit import audit_request

TABLES = """
CREATE TABLE element_jobs (id, element_id, request_id, step, state, mask, job_id);
CREATE TABLE elements (id, request_id, step, state, blocks, mask);
CREATE TABLE files (id, dataset_id, block_id, name, events, lumis, element_job_id);
CREATE TABLE datasets (id, request_id);
CREATE TABLE requests (id, root_id);
"""


class Store:
    """One request with one element of one block: file 1 with 10 events, file 2 without any."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.connection.executescript(TABLES)
        self._run("INSERT INTO elements VALUES (1, 7, 0, 'Done', '[5]', '')")
        self._run("INSERT INTO files VALUES (1, 1, 5, 'a', 10, '', NULL)")
        self._run("INSERT INTO files VALUES (2, 1, 5, 'b', 0, '', NULL)")
        self._run("INSERT INTO datasets VALUES (1, NULL)")
        self._run("INSERT INTO datasets VALUES (2, 7)")
        self._run("INSERT INTO requests VALUES (7, NULL)")

    def _run(self, sql: str, *values: Any) -> None:
        self.connection.execute(sql, values)

    def job(self, id_: int, files: list[list[Any]], state: str = "done", pool_job: int | None = None) -> None:
        mask = json.dumps({"files": files})
        self._run(
            "INSERT INTO element_jobs VALUES (?, 1, 7, 0, ?, ?, ?)", id_, state, mask, pool_job or 100 + id_
        )

    def output(self, element_job: int) -> None:
        self._run("INSERT INTO files VALUES (?, 2, 6, 'out', 1, '', ?)", 50 + element_job, element_job)


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.connection.close()


def test_a_request_with_each_event_once_passes(store: Store) -> None:
    store.job(1, [[1, 0, 6]])
    store.job(2, [[1, 6, -1], [2, 0, -1]])
    store.output(1)
    audit = audit_request(store.connection, 7)
    assert (audit.events, audit.outputs, audit.jobs) == (11, 1, {"done": 2})


def test_events_twice_are_found(store: Store) -> None:
    store.job(1, [[1, 0, 6]])
    store.job(2, [[1, 5, -1], [2, 0, -1]])
    with pytest.raises(AssertionError, match="same events of file 1"):
        audit_request(store.connection, 7)


def test_lumis_twice_are_found(store: Store) -> None:
    store.job(1, [[1, 0, -1, [[1, 1, 4]]]])
    store.job(2, [[1, 0, -1, [[1, 4, 5]]]])
    with pytest.raises(AssertionError, match="lumis twice"):
        audit_request(store.connection, 7, complete=False)


def test_missing_events_are_found(store: Store) -> None:
    store.job(1, [[1, 0, 6]])
    store.job(2, [[1, 6, -1]], state="exhausted")
    with pytest.raises(AssertionError, match="has 6 of 11"):
        audit_request(store.connection, 7)
    assert audit_request(store.connection, 7, complete=False).events == 6


def test_outputs_of_refused_results_are_found(store: Store) -> None:
    store.job(1, [[1, 0, -1], [2, 0, -1]])
    store.job(2, [], state="exhausted")
    store.output(2)
    with pytest.raises(AssertionError, match="without an accepted result"):
        audit_request(store.connection, 7)


def test_a_pool_job_of_two_rows_is_found(store: Store) -> None:
    store.job(1, [[1, 0, -1]], pool_job=9)
    store.job(2, [[2, 0, -1]], pool_job=9)
    with pytest.raises(AssertionError, match="pool jobs of several"):
        audit_request(store.connection, 7)
