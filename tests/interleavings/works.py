"""What the cases send: submissions, requests, blocks of data, and the policy of the common world."""

from __future__ import annotations

import json
from typing import Any

from pilotage.wire.datasets import (
    ADD_FILES,
    DataSetFile,
    FilesAdd,
    ReplicaLocation,
)
from pilotage.wire.jobs import ACT_ON_JOBS, ActionRequest, Selection
from pilotage.wire.requests import (
    RequestSubmission,
)
from pilotage.wire.submissions import (
    Parameters,
    SubmitRequest,
)
from tests.interleavings.server import Work, call

UNLIMITED = """\
[groups.admin]
properties = ["NORMAL_USER", "ADMINISTRATOR", "PRODUCTION_MANAGEMENT", "AGENT"]
[groups.physics]
properties = ["NORMAL_USER", "JOB_SHARING"]
[users.alice]
groups = ["admin", "physics"]
[users.bob]
groups = ["physics"]
[sites.A]
storage = ["/store/A"]
[sites.B]
storage = ["/store/B"]
[catalogues.c]
type = "rucio"
[catalogues.c.rucio]
url = "https://rucio.example.org"
[requests]
agent_lease = 300.0
agent_team = ""
cooloff_payload = 15
[jobs]
retry_delay = 20
offer_timeout = 60
max_reschedules = 2
[ces.a]
site = "A"
type = "slurm"
owners = "any"
isolation = "userns"
lease = 300
heartbeat = 10
max_running = 40
[ces.b]
site = "B"
type = "slurm"
owners = "any"
isolation = "userns"
lease = 300
heartbeat = 10
max_running = 40
"""
LIMIT = """
[[limits]]
attribute = "owner"
value = "bob"
running = 3
"""
POLICY = UNLIMITED + LIMIT


GENERATOR: dict[str, Any] = {
    "input": None,
    "merge": None,
    "events": 100,
    "splitting": {"algorithm": "EventBased", "events_per_job": 100},
    "retry": {"max_retries": 0},
}


def submission(count: int = 1, **fields: Any) -> SubmitRequest:
    parameters = Parameters(["number"], [[number] for number in range(count)]) if count > 1 else None
    return SubmitRequest({"executable": "/bin/true", **fields}, parameters=parameters, group="physics")


def request(**fields: Any) -> RequestSubmission:
    plain: dict[str, Any] = {
        "name": "work",
        "team": "home",
        "input": "/data",
        "program": {"executable": "run.sh"},
        "splitting": {"algorithm": "FileBased", "files_per_job": 1},
        "output": {"files": ["out"]},
        "merge": {"min_size": "1 kB", "max_size": "10 GB"},
        "retry": {"max_retries": 1, "cooloff": "10 s"},
    }
    return RequestSubmission({k: v for k, v in {**plain, **fields}.items() if v is not None})


def acting(verb: str, *jobs: int, **more: Any) -> Work:
    return call(ACT_ON_JOBS, ActionRequest(Selection(ids=list(jobs)), **more), verb)


def add_block(name: str, files: int = 2, dataset: str = "/data", *, complete: bool = True) -> Work:
    given = [DataSetFile(f"{name}/{number}", 1000, 100) for number in range(files)]
    places = [ReplicaLocation("A", "/data/A"), ReplicaLocation("B", "/data/B")]
    return call(ADD_FILES, FilesAdd(dataset, name, given, places, complete))


class Body:
    """A request with a body, as a route reads it."""

    def __init__(self, content: Any) -> None:
        self._content = json.dumps(content).encode()
        self.headers: dict[str, str] = {}

    async def body(self) -> bytes:
        return self._content
