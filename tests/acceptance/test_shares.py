"""The scenario of "DIRAC Priority schema" on real pilots: a production group that shares, users who compete.

What is shown must follow from what is shown: each correction from the use beside it, each priority from the
correction, each queue's priority from the entity's.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.wire.jobs import Selection
from pilotage.wire.shares import ShareRow, ShareTable
from tests.instance import Instance, running, until

pytestmark = pytest.mark.slow

WEIGHTS, BOUNDS, GLOBAL = {"Week": 80, "Hour": 20}, {"Week": 2, "Hour": 5}, 3
SLICES = """\
[correction.WMSHistory.{name}.slices.WeekSlice]
time_span = 604800
weight = 80
max_correction = 2
[correction.WMSHistory.{name}.slices.HourSlice]
time_span = 3600
weight = 20
max_correction = 5
"""
DOCUMENTS = f"""
[groups.lhcb_prod]
share = 3000
properties = ["NORMAL_USER", "JOB_SHARING"]
[groups.lhcb_user]
share = 1000
[matching]
rule = "dirac"
[correction]
correctors = ["WMSHistory"]
period = 1
[correction.WMSHistory.GroupsInstance]
max_global_correction_factor = 3
{SLICES.format(name="GroupsInstance")}
[correction.WMSHistory.lhcb_userInstance]
group = "lhcb_user"
max_global_correction_factor = 3
{SLICES.format(name="lhcb_userInstance")}
"""


@pytest.fixture(scope="module")
def lhcb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("lhcb"), owners="any", idle=1) as instance:
        text = instance.policy.replace('groups = ["others"]', 'groups = ["lhcb_user", "lhcb_prod"]')
        instance.policy = text.replace("[groups.others]\n", "[groups.others]\nshare = 1\n") + DOCUMENTS
        yield instance


def close_site(lhcb: Instance, closed: bool) -> None:
    """Let nothing start, or everything; wait until what ran has ended."""
    text = lhcb.policy.replace("[sites.here]\n", f"[sites.here]\nbanned = {str(closed).lower()}\n")
    lhcb.client().apply_policy(text)
    if closed:
        held = Selection(states=["Matched", "Running", "Completing", "Stalled"])
        until(lambda: not lhcb.client().counts(held).total, what="the end of what runs")


def submit(lhcb: Instance, user: str, group: str, count: int, priority: int = 1) -> int:
    job = {"executable": "sleep", "arguments": ["0.2"], "user_priority": priority}
    return lhcb.client(user).submit(job, values=range(count), group=group).submission


def done(lhcb: Instance, submission: int, count: int) -> None:
    asked = Selection(submission=submission)
    until(lambda: lhcb.client().counts(asked).final >= count, what=f"{count} jobs done")


def row(table: ShareTable, group: str, owner: str = "") -> ShareRow:
    return next(one for one in table.rows if (one.group, one.owner) == (group, owner))


def clamp(value: float, most: float) -> float:
    return max(min(value, most), 1 / most)


def follows(table: ShareTable) -> None:
    """The document's formulas, from the numbers beside them."""
    for one in table.rows:
        if one.group not in ("lhcb_prod", "lhcb_user") or not one.slices:
            continue
        weighted = 0.0
        for part in one.slices:
            weight, most = (80, 2) if part.name == "WeekSlice" else (20, 5)
            if part.expected is None or part.used is None:
                correction = 1.0
            else:
                correction = clamp(part.expected / part.used, most) if part.used else most
            assert part.correction == pytest.approx(correction)
            weighted += part.correction * weight / 100
        assert one.correction == pytest.approx(clamp(weighted, GLOBAL))
    users, prod = row(table, "lhcb_user"), row(table, "lhcb_prod")
    for group in (users, prod):
        if group.waiting:
            assert group.priority == pytest.approx(group.share * group.correction)
    owners = [one for one in table.rows if one.group == "lhcb_user" and one.owner and one.waiting]
    assert sum(one.priority for one in owners) == pytest.approx(users.priority)
    raw = sum(one.correction for one in owners)
    for one in owners:
        assert one.priority == pytest.approx(users.priority * one.correction / raw)
        assert one.scaled == pytest.approx(one.correction * len(owners) / raw)


def test_the_documents_scenario(lhcb: Instance, tmp_path: Path) -> None:
    client = lhcb.client()
    close_site(lhcb, True)
    first = submit(lhcb, "alice", "lhcb_user", 60)
    until(lambda: row(client.shares(), "lhcb_user").waiting == 60, what="jobs that wait")
    assert row(client.shares(), "lhcb_user").priority == 1000, "nobody has used anything: no correction"

    # Alice alone runs; then the production and bob come.
    close_site(lhcb, False)
    done(lhcb, first, 12)
    close_site(lhcb, True)
    production = submit(lhcb, "alice", "lhcb_prod", 30, priority=3)
    submit(lhcb, "bob", "lhcb_prod", 30)
    bobs = submit(lhcb, "bob", "lhcb_user", 20)

    def boosted() -> ShareTable | None:
        table = client.shares()
        prod, bob = row(table, "lhcb_prod"), row(table, "lhcb_user", "bob")
        arrived = prod.waiting == 60 and bob.waiting == 20
        return table if arrived and prod.correction > 1 and bob.correction > 1 else None

    table = until(boosted, what="the correction")
    follows(table)
    # Absent in both slices: 0.8·2 + 0.2·5. Four times over: 0.8·(1/2) + 0.2·(1/4).
    assert row(table, "lhcb_prod").correction == pytest.approx(2.6)
    assert row(table, "lhcb_user").correction == pytest.approx(0.45)
    alice, bob = row(table, "lhcb_user", "alice"), row(table, "lhcb_user", "bob")
    assert (alice.correction, bob.correction) == (pytest.approx(0.5), pytest.approx(2.6))
    assert (alice.priority, bob.priority) == (pytest.approx(450 * 0.5 / 3.1), pytest.approx(450 * 2.6 / 3.1))

    # In the shared group the queues divide by sums of UserPriority, whoever owns them: 90 to 30.
    def queues() -> list[float] | None:
        found = sorted(one.priority for one in client.queues() if one.group == "lhcb_prod")
        return found if sum(found) == pytest.approx(7800) else None

    assert until(queues, what="the priorities of the queues") == pytest.approx([1950, 5850])

    # All run: the boost of the production melts away, and at every moment the numbers follow from each other.
    close_site(lhcb, False)
    done(lhcb, production, 20)
    close_site(lhcb, True)
    ended = max(job.ended or 0.0 for job in client.jobs(Selection(states=["Done"])))

    def melted() -> ShareTable | None:
        """All that has run is charged."""
        now = client.shares()
        charged = now.corrected_at is not None and now.corrected_at >= ended
        return now if charged and row(now, "lhcb_prod").correction < 2.6 else None

    later = until(melted, what="the next correction")
    follows(later)
    used = {part.name: part.used for part in row(later, "lhcb_prod").slices}
    assert all(part is not None and 0 < part < 1 for part in used.values())
    assert row(later, "lhcb_user").correction >= row(table, "lhcb_user").correction

    # A restart forgets nothing of it.
    lhcb.kill_server()
    lhcb.start()
    client = lhcb.client()
    again = until(
        lambda: (now := client.shares()).as_of and now.corrected_at and now, what="the first correction"
    )
    follows(again)  # type: ignore[arg-type]
    assert {part.name: part.used for part in row(again, "lhcb_prod").slices} == pytest.approx(used)  # type: ignore[arg-type]
    close_site(lhcb, False)
    done(lhcb, bobs, 20)
    tell(lhcb)


def tell(lhcb: Instance) -> None:
    """The commands that show it."""
    listed = lhcb.cli("share", "list")
    assert listed.returncode == 0, listed.stderr
    heads, *lines = (line.split("\t") for line in listed.stdout.splitlines())
    assert heads[:4] == ["group", "owner", "share", "entitled"]
    assert [line[:3] for line in lines if line[0] == "lhcb_prod"] == [["lhcb_prod", "-", "3000"]]
    assert "WMSHistory" in listed.stderr

    def owners() -> set[str]:
        only = json.loads(lhcb.cli("share", "list", "--group", "lhcb_user", "--json").stdout)
        return {one["owner"] for one in only["rows"]}

    # An owner without waiting jobs stands in the list once the use is charged.
    until(lambda: owners() == {"", "alice", "bob"}, what="all owners of the group")
    assert lhcb.cli("share", "list", "--group", "nobody").returncode == 2
    checked = lhcb.cli("fairness", "check", "--since", "10m", "--json")
    report = json.loads(checked.stdout)
    groups = {one["group"]: one for one in report["rows"] if not one["owner"]}
    assert sum(one["used"] for one in groups.values()) == pytest.approx(1)
    assert groups["lhcb_prod"]["expected"] > groups["lhcb_prod"]["entitled"], (
        "the document's draw favours the larger"
    )
    assert lhcb.cli("fairness", "check", "--since", "5s").returncode == 2
    assert lhcb.cli("fairness", "check", "--since", "9999d").returncode == 2
    rows = list(csv.DictReader(io.StringIO(lhcb.cli("accounting", "export").stdout)))
    assert {(one["group"], one["owner"], one["site"]) for one in rows} >= {("lhcb_user", "bob", "here")}
    assert all(float(one["wall"]) > 0 for one in rows)
    assert lhcb.cli("accounting", "export", "--from", "2026-13").returncode == 2
    assert lhcb.cli("accounting", "export", "--from", "2031-01", "--format", "json").stdout == "[]\n"
