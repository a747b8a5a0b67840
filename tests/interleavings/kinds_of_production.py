"""What people do with requests and data sets in the common world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pilotage.wire.call import ApiCall
from pilotage.wire.datasets import (
    CHANGE_REPLICAS,
    CLOSE_DATASET,
    CREATE_DATASET,
    REMOVE_DATASET,
    DataSetChange,
    DataSetCreate,
    ReplicaLocation,
    ReplicasChange,
)
from pilotage.wire.requests import (
    ABORT_REQUEST,
    ANNOUNCE_REQUEST,
    APPROVE_REQUEST,
    ARCHIVE_REQUEST,
    ASSIGN_REQUEST,
    CLONE_REQUEST,
    CLOSE_OUT_REQUEST,
    FORCE_COMPLETE_REQUEST,
    PAUSE_REQUEST,
    REJECT_REQUEST,
    RESUBMIT_REQUEST,
    RESUME_REQUEST,
    SET_REQUEST_PRIORITY,
    SET_REQUEST_SITES,
    SUBMIT_REQUEST,
    RequestAssignment,
    RequestChange,
    RequestClone,
    RequestPriority,
    RequestResubmission,
    RequestSites,
)
from tests.interleavings.kinds_of_people import Kind
from tests.interleavings.server import call
from tests.interleavings.works import add_block, request

WHY = RequestChange("test")


def _of(api: ApiCall[Any, Any], name: str, body: object = WHY) -> Kind:
    return lambda world: call(api, body, world.requests[name])


def _data(api: ApiCall[Any, Any], body: object) -> Kind:
    return lambda world: call(api, body)


OF_REQUESTS: Final[Mapping[str, Kind]] = {
    "submit a request": lambda world: call(SUBMIT_REQUEST, request(name="later")),
    "submit a request over old data": lambda world: call(SUBMIT_REQUEST, request(name="old", input="/old")),
    "approve": _of(APPROVE_REQUEST, "new"),
    "reject": _of(REJECT_REQUEST, "new"),
    "assign": _of(ASSIGN_REQUEST, "new", RequestAssignment("home", reason="test")),
    "request priority": _of(SET_REQUEST_PRIORITY, "work", RequestPriority(9000, "test")),
    "request sites": _of(SET_REQUEST_SITES, "work", RequestSites(["A"], reason="test")),
    "ban a site of a request": _of(SET_REQUEST_SITES, "work", RequestSites(banned_sites=["A"])),
    "pause": _of(PAUSE_REQUEST, "work"),
    "resume": _of(RESUME_REQUEST, "paused"),
    "abort": _of(ABORT_REQUEST, "work"),
    "abort the last": _of(ABORT_REQUEST, "last"),
    "abort the paused": _of(ABORT_REQUEST, "paused"),
    "force complete": _of(FORCE_COMPLETE_REQUEST, "work"),
    "force complete the last": _of(FORCE_COMPLETE_REQUEST, "last"),
    "clone": _of(CLONE_REQUEST, "failed", RequestClone("copy")),
    "resubmit": _of(RESUBMIT_REQUEST, "failed", RequestResubmission("key")),
    "close out": _of(CLOSE_OUT_REQUEST, "failed"),
    "announce": _of(ANNOUNCE_REQUEST, "failed"),
    "reject the ended": _of(REJECT_REQUEST, "failed"),
    "archive": _of(ARCHIVE_REQUEST, "failed"),
}
OF_DATA_SETS: Final[Mapping[str, Kind]] = {
    "create a data set": _data(CREATE_DATASET, DataSetCreate("/new")),
    "add a block": lambda world: add_block("late"),
    "complete a block": lambda world: add_block("open", 3),
    "add replicas": _data(CHANGE_REPLICAS, ReplicasChange("/data", add=[ReplicaLocation("B", "/data/B")])),
    "remove replicas": _data(CHANGE_REPLICAS, ReplicasChange("/data", remove=["B"])),
    "forget replicas": _data(CHANGE_REPLICAS, ReplicasChange("/data", forget=True)),
    "close a data set": _data(CLOSE_DATASET, DataSetChange("/data")),
    "remove a data set": _data(REMOVE_DATASET, DataSetChange("/old")),
    "remove data in use": _data(REMOVE_DATASET, DataSetChange("/data")),
}
