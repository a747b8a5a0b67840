"""The information of CEs: stored answers, the policy over them, expiry and problems. Time is virtual."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pilotage.core.brokering.published import PublishedInformation
from pilotage.core.classads import Literal, evaluate
from pilotage.core.errors import Unreachable
from pilotage.core.glue.information import CeInformation, HostClass
from pilotage.core.policy import Ce, parse
from pilotage.outside.batch.adapter import BatchAdapter
from pilotage.server.context import Context
from pilotage.server.duties import information as duty
from pilotage.server.duties.information import InformationDuty
from pilotage.server.failing_rows import FailingRows
from pilotage.services.director import ce_status
from pilotage.services.director.information import CeReply, response_times, store_answers
from pilotage.services.policy.apply import apply_policy
from pilotage.store.tables import ce_information
from pilotage.store.tables.waits import PilotWait, recent_waits
from tests.deadlines import PATIENCE
from tests.instance import until
from tests.paper_batch import PaperBatch
from tests.unit.services.bench import POLICY, Bench

PLACES = (
    '[ces.far]\nsite = "here"\ntype = "slurm"\nowners = "any"\nwall = 7200\ninformation_period = 60\n'
    '[ces.near]\nsite = "here"\ntype = "slurm"\nowners = "any"\n'
)
HOSTS = (
    HostClass(2, {"GlueHostBenchmarkSI00": 600}, ("n1", "n2")),
    HostClass(1, {"GlueHostBenchmarkSI00": 400}),
)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, POLICY + PLACES, store=request.param)
    yield made
    made.check()
    made.end()


def answer(bench: Bench, ce: str = "far", problem: str = "", **attributes: Any) -> None:
    facts = None if problem else CeInformation(attributes, HOSTS, updated=bench.now, expiry=300.0)
    bench.do(lambda tx: store_answers(bench.pool, tx, [CeReply(ce, facts, problem)], bench.now))


def now_at(bench: Bench, ce: str = "far") -> CeInformation:
    return published_by(bench, ce).information


def published_by(bench: Bench, ce: str) -> PublishedInformation:
    pool = bench.pool
    return pool.ces.published.of(
        pool.policy, ce, pool.ces.information.get(ce), pool.server.home_owner, bench.now
    )


def problems(bench: Bench) -> dict[str, str]:
    rows = ce_information.load(bench.connection)
    return {name: row.problem for name, row in rows.items()}


def events(bench: Bench) -> list[tuple[str, str, str]]:
    sql = "SELECT old, new, detail FROM events WHERE kind = 'ce' ORDER BY id"
    return [tuple(row) for row in bench.connection.execute(sql)]


def test_the_last_facts_outlive_the_server(bench: Bench) -> None:
    answer(bench, GlueCEStateFreeCPUs=3, Ratio=1.0, Tags=("a", "b"), Flag=True, Text="x\0y")
    before = bench.pool.ces.information
    assert before["far"].host_classes == HOSTS
    bench.close()
    bench.open()
    assert bench.pool.ces.information == before
    kinds = [type(value) for value in bench.pool.ces.information["far"].attributes.values()]
    assert kinds == [int, float, tuple, bool, str]


def test_facts_that_are_the_same_stay_the_same_objects(bench: Bench) -> None:
    answer(bench, GlueCEStateFreeCPUs=1)
    first = bench.pool.ces.information["far"]
    bench.now += 60
    answer(bench, GlueCEStateFreeCPUs=1)
    second = bench.pool.ces.information["far"]
    assert second.updated == bench.now
    assert second.attributes is first.attributes
    assert second.host_classes is first.host_classes
    assert ce_information.load(bench.connection)["far"].information == second
    answer(bench, GlueCEStateFreeCPUs=True)
    assert bench.pool.ces.information["far"].attributes == {"GlueCEStateFreeCPUs": True}
    assert ce_information.load(bench.connection)["far"].information == bench.pool.ces.information["far"]


def test_expired_facts_are_unknown_and_not_free(bench: Bench) -> None:
    assert "GlueCEStateStatus" not in now_at(bench).attributes
    answer(bench, GlueCEStateStatus="Production", GlueCEStateFreeCPUs=8, GlueCEPolicyMaxWallClockTime=1800)
    facts = now_at(bench)
    assert facts is now_at(bench), "caches compare by identity"
    assert (facts.attributes["GlueCEStateFreeCPUs"], facts.attributes["GlueSiteName"]) == (8, "here")
    bench.now += 299
    assert now_at(bench) is facts
    bench.now += 1
    expired = now_at(bench).attributes
    assert not [name for name in expired if name.startswith("GlueCEState")]
    assert expired["GlueCEPolicyMaxWallClockTime"] == 1800
    assert now_at(bench).host_classes == HOSTS
    bench.now -= 400
    assert "GlueCEStateFreeCPUs" not in now_at(bench).attributes, "from the future: the clock was set back"
    bench.now += 100
    assert now_at(bench) == facts


def test_a_state_that_the_policy_sets_never_expires(bench: Bench) -> None:
    apply(bench, bench.policy_text + '[ces.far.attributes]\nglueceStateStatus = "Closed"\n')

    def state() -> object:
        ad = bench.pool.ce_ad("far", bench.now)
        assert ad is not None
        return evaluate(ad.ad.index.get("gluecestatestatus", Literal("")), ad.ad)

    assert state() == "Closed", "the batch system has never answered"
    answer(bench, GlueCEStateStatus="Production", GlueCEStateFreeCPUs=1)
    assert state() == "Closed"
    bench.now += 1000
    assert state() == "Closed"


def test_the_policy_overrides_and_completes_the_facts(bench: Bench) -> None:
    answer(bench, GlueCEPolicyMaxWallClockTime=172800, GlueCEInfoLRMSVersion="22.05", gluehostbenchmarksf00=5)
    plain = now_at(bench)
    assert plain.attributes["GlueCEPolicyMaxWallClockTime"] == 7200, "pilots end earlier"
    assert plain.attributes["GlueCEPolicyMaxCPUTime"] == 7200
    assert plain.attributes["GlueHostBenchmarkSI00"] == 400, "the least of all hosts"
    text = bench.policy_text + (
        '[ces.far.attributes]\nGlueCEPolicyMaxCPUTime = 500\nGlueHostBenchmarkSF00 = 380\nRack = "r"\n'
    )
    apply(bench, text)
    changed = now_at(bench)
    assert changed.attributes["GlueCEPolicyMaxCPUTime"] == 500
    assert changed.attributes["Rack"] == "r"
    assert changed.attributes["gluehostbenchmarksf00"] == 380, "one attribute, however it is spelled"
    assert "GlueHostBenchmarkSF00" not in changed.attributes
    assert changed.host_classes == HOSTS
    apply(
        bench, text + '[[ces.far.hosts]]\nhosts = ["a", "b"]\nattributes = { GlueHostBenchmarkSI00 = 700 }\n'
    )
    static = now_at(bench)
    assert static.host_classes == (HostClass(2, {"GlueHostBenchmarkSI00": 700}, ("a", "b")),)
    assert static.attributes["GlueHostBenchmarkSI00"] == 700


def test_attributes_of_a_homogeneous_ce_hold_for_each_host(bench: Bench) -> None:
    answer(bench)
    more = "[ces.far.attributes]\nGlueHostBenchmarkSF00 = 380\nRack = 1\n"
    apply(bench, bench.policy_text.replace("wall = 7200", "wall = 7200\nhomogeneous = true") + more)
    assert now_at(bench).homogeneous
    assert now_at(bench).host_classes[1].attributes == {
        "GlueHostBenchmarkSI00": 400,
        "GlueHostBenchmarkSF00": 380,
    }


def test_the_access_rule_is_told_only_where_it_is_whole(bench: Bench) -> None:
    rule = "GlueCEAccessControlBaseRule"
    assert now_at(bench, "home").attributes[rule] == ("alice",)
    assert rule not in now_at(bench).attributes
    with_vo = bench.policy_text.replace("[groups.physics]", '[groups.physics]\nvo = "egee"')
    apply(bench, with_vo)
    assert rule not in now_at(bench).attributes, "a group without VO may use it too"
    with_vo = with_vo.replace("[groups.sharing]", '[groups.sharing]\nvo = "egee"')
    apply(bench, with_vo.replace("[users.alice]", '[users.alice]\nsubject = "/CN=Alice"'))
    assert now_at(bench).attributes[rule] == ("VO:egee",)
    assert now_at(bench, "home").attributes[rule] == ("/CN=Alice",)


def apply(bench: Bench, text: str) -> None:
    bench.do(lambda tx: apply_policy(bench.pool, tx, parse(text), text, by="ada", reason="", now=bench.now))


def test_a_problem_begins_and_ends_with_an_event_and_keeps_the_last_facts(bench: Bench) -> None:
    answer(bench, GlueCEStateFreeCPUs=1)
    known = bench.pool.ces.information["far"]
    for _ in range(3):
        bench.now += 60
        answer(bench, problem="sinfo did not answer")
    assert bench.pool.ces.information["far"] is known
    assert problems(bench) == {"far": "sinfo did not answer"}
    row = ce_information.load(bench.connection)["far"]
    assert (row.information, row.problem_since) == (known, bench.now - 120)
    answer(bench, GlueCEStateFreeCPUs=1)
    assert problems(bench) == {"far": ""}
    assert events(bench) == [
        ("", "no information", "CE far: information: sinfo did not answer"),
        ("no information", "", "CE far: information again"),
    ]


def test_a_failed_transaction_changes_nothing(bench: Bench) -> None:
    answer(bench, GlueCEStateFreeCPUs=1)
    known = bench.pool.ces.information["far"]

    def failing(tx: Any) -> None:
        store_answers(bench.pool, tx, [CeReply("far", CeInformation({"X": 1}, updated=5.0))], 5.0)
        raise RuntimeError("taken back")

    with pytest.raises(RuntimeError):
        bench.do(failing)
    assert bench.pool.ces.information["far"] is known
    assert ce_information.load(bench.connection)["far"].information == known


def test_response_times_are_medians_of_the_last_pilots(bench: Bench) -> None:
    waits = [PilotWait("far", 100.0 + n, 110.0 + 2 * n) for n in range(5)] + [PilotWait("near", 50.0, None)]
    assert response_times(waits, 200.0) == {"far": (12, 14), "near": (150, 150)}
    many = [PilotWait("far", 0.0, 1.0)] * 25 + [PilotWait("far", 0.0, 1000.0)] * 100
    assert response_times(many, 0.0) == {"far": (1, 1)}, "only the last ones count"
    bench.pilot()
    [wait] = recent_waits(bench.connection)
    assert wait.ce == "local"


def test_values_are_read_from_features_by_the_forward_table(bench: Bench) -> None:
    hosts = (
        HostClass(1, {"SlurmFeatures": ("avx", "si00_600")}, ("n1",)),
        HostClass(2, {"SlurmFeatures": ("si00_400", "si00_500")}, ("n2", "n3")),
        HostClass(1, {}, ("n4",)),
    )
    facts = CeInformation({}, hosts, updated=bench.now)
    bench.do(lambda tx: store_answers(bench.pool, tx, [CeReply("far", facts)], bench.now))
    forward = '[ces.far.forward]\nGlueHostBenchmarkSI00 = "feature si00_{}"\nHasAvx = "feature avx"\n'
    apply(bench, bench.policy_text + forward)
    published = published_by(bench, "far")
    first, second, third = (dict(known.attributes) for known in published.information.host_classes)
    assert (first["GlueHostBenchmarkSI00"], first["HasAvx"]) == (600, True)
    assert second == {"SlurmFeatures": ("si00_400", "si00_500"), "HasAvx": False}
    assert third == {}, "features that are not known are not absent"
    assert "GlueHostBenchmarkSI00" not in published.information.attributes
    [problem] = published.problems
    assert problem == (
        "host n2 and 1 more: GlueHostBenchmarkSI00 has several values: features si00_400, si00_500, so it is unknown"
        " there"
    )


def test_the_state_of_a_ce_tells_problems_and_age(bench: Bench) -> None:
    def status(**problems: tuple[str, ...]) -> tuple[str, float | None]:
        rows = ce_status.summaries(bench.pool.policy, bench.connection, bench.now, problems)
        [row] = (row for row in rows if row.name == "far")
        return row.information, row.information_at

    assert status() == ("", None)
    answer(bench, problem="squeue: no route")
    assert status(far=("two values",)) == ("squeue: no route; two values", None)
    answer(bench, GlueCEStateFreeCPUs=1)
    told = bench.now
    assert status(far=("two values",)) == ("two values", told)
    bench.now += 300
    assert status() == ("the last answer has expired, so the state of the batch system is unknown", told)
    answer(bench, problem="squeue: no route")
    assert status()[0].startswith("squeue: no route; the last answer has expired")
    bench.now = told - 61
    assert "from the future" in status()[0]


# --- the duty


class SlowBatch(PaperBatch):
    """Answers when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.questions = 0
        self.closed = False

    def information(self) -> CeInformation:
        self.questions += 1
        assert self.gate.wait(PATIENCE)
        return super().information()

    def close(self) -> None:
        self.closed = True


class Site:
    """The duty of a bench, and the batch systems that it asks."""

    def __init__(self, bench: Bench, make: Callable[[], SlowBatch] = SlowBatch) -> None:
        self.bench = bench
        self.batches: dict[str, SlowBatch] = {}
        self.make = make

        async def acall(work: Callable[[Any], Any]) -> Any:
            return bench.do(work)

        async def quick_read(query: Callable[[Any], Any]) -> Any:
            return query(bench.connection)

        context = SimpleNamespace(
            pool=bench.pool,
            writer=SimpleNamespace(acall=acall, in_loop=True),
            clock=lambda: bench.now,
            monotonic=time.monotonic,
            quick_read=quick_read,
            duties=SimpleNamespace(failing=FailingRows(lambda: bench.now)),
        )
        self.duty = InformationDuty(cast(Context, context), self._make)

    def _make(self, name: str, ce: Ce) -> BatchAdapter:
        name = next(name for name, known in self.bench.pool.policy.ces.items() if known is ce)
        self.batches[name] = self.make()
        return self.batches[name]

    def cycle(self) -> None:
        asyncio.run(self.duty.cycle())

    def cycles(self, *done: str) -> None:
        """Cycles until the questions of these CEs have stored answers."""
        self.cycle()
        until(lambda: all(q.ended for q in self.duty._questions.values() if q.name in done), what="answers")
        self.cycle()


def test_each_ce_is_asked_once_in_its_period(bench: Bench) -> None:
    apply(bench, bench.policy_text.replace("information_period = 60", "information_period = 600"))
    site = Site(bench)
    site.cycles("far", "near")
    assert bench.pool.ces.information.keys() == {"far", "near"}
    assert bench.pool.ces.information["far"].expiry == 3000
    assert bench.pool.ces.information["near"].attributes["GlueCEStateEstimatedResponseTime"] == 0
    for _ in range(5):
        bench.now += 12
        site.cycles("far", "near")
    assert {name: batch.questions for name, batch in site.batches.items()} == {"far": 1, "near": 2}
    bench.now -= 10_000
    site.cycles("far", "near")
    assert site.batches["far"].questions == 2, "a clock that stepped back ends the wait"


class ClosedBatch(SlowBatch):
    """Its nodes have not registered with the controller yet."""

    def information(self) -> CeInformation:
        facts = super().information()
        return replace(facts, attributes={**facts.attributes, "GlueCEStateStatus": "Queueing"})


def test_a_closed_ce_is_asked_again_before_its_period_is_over(bench: Bench) -> None:
    apply(bench, bench.policy_text.replace("information_period = 60", "information_period = 600"))
    site = Site(bench, ClosedBatch)
    site.cycles("far", "near")
    for _ in range(2):
        bench.now += 5
        site.cycles("far", "near")
    assert site.batches["far"].questions == 2


def test_a_batch_system_that_hangs_holds_up_no_other(bench: Bench) -> None:
    site = Site(bench)
    site.cycles("far", "near")
    site.batches["far"].gate.clear()
    for _ in range(3):
        bench.now += 61
        site.cycles("near")
    assert site.batches["far"].questions == 2
    assert site.batches["near"].questions == 4
    assert bench.pool.ces.information["near"].updated > bench.pool.ces.information["far"].updated
    site.batches["far"].gate.set()
    site.cycles("far", "near")


def test_questions_at_the_same_time_are_bounded_and_slow_ones_do_not_count(bench: Bench) -> None:
    ces = 2 * duty.MOST_QUESTIONS
    more = "".join(f'[ces.c{n}]\nsite = "here"\ntype = "slurm"\nowners = "any"\n' for n in range(ces - 2))
    apply(bench, bench.policy_text + more)
    gates: list[SlowBatch] = []

    def hanging() -> SlowBatch:
        batch = SlowBatch()
        batch.gate.clear()
        gates.append(batch)
        return batch

    site = Site(bench, hanging)
    for _ in range(3):
        site.cycle()
        assert len(gates) == duty.MOST_QUESTIONS
    bench.now += duty.SLOW
    site.cycle()
    assert len(gates) == ces
    for batch in gates:
        batch.gate.set()
    site.cycles(*bench.pool.policy.ces)
    assert len(bench.pool.ces.information) == ces


def test_errors_become_problems_and_the_last_facts_stay(bench: Bench) -> None:
    site = Site(bench)
    site.cycles("far", "near")
    known = bench.pool.ces.information["far"]
    for failure in (Unreachable("squeue: no route"), ZeroDivisionError("nobody expected it")):
        bench.now += 61

        def fails(failure: Exception = failure) -> CeInformation:
            raise failure

        site.batches["far"].information = fails  # type: ignore[method-assign]
        site.cycles("far", "near")
        assert bench.pool.ces.information["far"] is known
    assert problems(bench)["far"] == "its answer could not be read: ZeroDivisionError"
    assert problems(bench)["near"] == ""


def test_a_ce_that_changes_is_asked_again_and_one_that_goes_is_forgotten(bench: Bench) -> None:
    site = Site(bench)
    site.cycles("far", "near")
    far, near = site.batches["far"], site.batches["near"]
    apply(bench, POLICY + PLACES.partition("[ces.near]")[0].replace("wall = 7200", "wall = 3600"))
    site.cycles("far")
    assert site.batches["far"] is not far
    assert far.closed
    assert near.closed
    assert bench.pool.ces.information.keys() == {"far"}
    assert ce_information.names(bench.connection) == {"far"}


def test_the_answer_of_another_cluster_is_not_taken_for_the_changed_ce(bench: Bench) -> None:
    """Its hosts would decide which jobs get pilots, for as long as the new cluster does not answer."""
    site = Site(bench)
    site.cycles("far", "near")
    assert bench.pool.ces.information.keys() == {"far", "near"}
    old = site.batches["far"]
    old.gate.clear()
    bench.now += 61
    site.cycles("near")
    asked, question = bench.now, site.duty._questions["far"]
    moved = bench.policy_text.replace("[ces.near]", '[ces.far.slurm]\npartition = "other"\n[ces.near]')
    apply(bench, moved)
    bench.now += 1
    site.cycle()
    assert old.closed
    assert "far" not in bench.pool.ces.information, "facts of the former cluster"
    old.gate.set()
    until(lambda: question.ended, what="the old answer")
    site.cycles("far")
    assert bench.pool.ces.information["far"].updated == asked + 1
    assert site.batches["far"].questions == 1
