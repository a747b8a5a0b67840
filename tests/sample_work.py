"""A server with sample work on all pages: for the pictures, and for the tests in a browser."""

from __future__ import annotations

from pilotage.core.datasets.facts import BlockEntry, FileEntry, Replica
from tests.instance import Instance, until

POLICY = """
[groups.physics]
share = 3000
[groups.theory]
share = 1000
[users.ada]
groups = ["physics"]
[users.emmy]
groups = ["theory"]
[sites.cellar]
[ces.farm]
type = "slurm"
site = "cellar"
owners = "any"
pilot_processors = 8
[ces.farm.slurm]
conf = "/nowhere/slurm.conf"
"""
EVENTS = {"algorithm": "EventBased", "events_per_job": 20}


def add_pages(server: Instance) -> dict[str, str]:
    """Give each page of the pool something to show; the addresses of the pages. `POLICY` is part of the policy."""
    client = server.client()
    client.create_dataset("data26/run.2026.AOD")
    files = tuple(FileEntry(f"events_{number}.root", 2_100_000_000, 125_000) for number in range(6))
    blocks = [
        BlockEntry("block-1", files[:4], (Replica("here", "/data"), Replica("cellar", "/pool"))),
        BlockEntry("block-2", files[4:], (Replica("cellar", "/pool"),)),
    ]
    client.add_to_dataset("data26/run.2026.AOD", blocks)
    program = {"executable": "sh", "arguments": ["-c", "echo simulated"]}
    request = {"name": "minimum-bias", "events": 400, "program": program, "splitting": EVENTS}
    runs = client.submit_request({**request, "team": "home"}).request.id
    waits = client.submit_request({**request, "name": "top-quarks", "team": "far-away"}).request.id
    until(lambda: client.request(runs).steps[0].jobs.get("done"), what="a job of the request")
    until(lambda: client.request(waits).request.state == "acquired", what="the elements of a request")
    client.submit({"executable": "true", "tags": ["gpu"], "job_name": "fit"}, values=list(range(40)))
    for user in ("ada", "emmy"):
        sent = server.client(user).submit({"executable": "true", "memory": 64_000}, values=list(range(25)))
    queue = server.client("emmy").job(sent.first).job.queue
    until(lambda: all(row.reason for row in client.queues()), what="the reasons of all queues")
    until(lambda: any(ce.reason for ce in client.ces()), what="a CE that does not answer")
    client.apply_policy(server.policy + "[sites.attic]\n", reason="a place for the new machines")
    return {
        "waiting": "/waiting",
        "waiting-queues": "/waiting/queues?reason=needs",
        "waiting-interval": f"/waiting/interval?begin=1&end={10**10}",
        "queue": f"/queues/{queue}",
        "shares": "/shares?period=hour",
        "share-group": "/shares/group?name=home&period=hour",
        "share-interval": f"/shares/interval?begin=1&end={10**10}",
        "ces": "/ces",
        "ce": "/ces/one?name=farm",
        "ce-disable": "/ces/disable?name=farm",
        "drain": "/sites/drain?name=cellar",
        "requests": "/requests",
        "request": f"/requests/{runs}",
        "request-waits": f"/requests/{waits}",
        "request-abort": f"/requests/{waits}/abort",
        "datasets": "/datasets",
        "dataset": "/datasets/one?name=data26/run.2026.AOD",
        "administration": "/administration",
        "policy": "/administration/policy",
        "policy-version": "/administration/policy/3",
        "policy-versions": "/administration/versions",
        "ban": "/administration/ban",
    }
