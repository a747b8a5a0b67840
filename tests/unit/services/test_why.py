"""`why` over a real pool: each change that it names is applied, each reason is reached, and the history is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pilotage.core import policy as policies
from pilotage.core.ids import QueueId
from pilotage.core.queues.wait_reason import Reason
from pilotage.core.sites import SiteState
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.ce_record import switch_ce
from pilotage.services.director.ce_status import closed_ces
from pilotage.services.director.local_orders import LocalOrders
from pilotage.services.director.ordering import order_pilots
from pilotage.services.policy.apply import apply_policy
from pilotage.services.policy.site_states import set_site_state
from pilotage.services.shares.corrections import apply_priorities
from pilotage.services.why import answer as why_answer
from pilotage.services.why import wait_history
from pilotage.store.tables import ces, listing, submissions, wait_reasons
from pilotage.store.tables.ces import CeProgress, CeSwitch
from pilotage.store.tables.selections import JobSelection, Viewer
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.jobs import JobSummary
from pilotage.wire.why import Opening, PlaceInQueue, Why
from tests.unit.services.bench import HOME_OWNER, NODE, POLICY, RETRY_DELAY, Bench, MakeBench

TWO_SITES = (
    POLICY
    + """
[sites.there]
job_types = ["Merge"]
[ces.far]
site = "there"
owners = "any"
setup = "production"
tags = ["gpu"]
required_tags = ["gpu"]
"""
)
TWO_CES = POLICY + '[ces.second]\nsite = "here"\nowners = "any"\n'
PROPORTIONAL = POLICY + '[matching]\nrule = "proportional"\n'
DIRAC = POLICY + '[matching]\nrule = "dirac"\n'
LIMITED = POLICY + '[[limits]]\nattribute = "owner"\nvalue = "bob"\nsite = "here"\nrunning = 1\n'
DELAYED = POLICY + '[[limits]]\nattribute = "job_type"\nvalue = "Merge"\nce = "local"\ndelay = 60\n'


def summary(bench: Bench, job: int) -> JobSummary:
    readers = bench.readers()
    everybody = Viewer("", everything=True)
    [row] = listing.jobs(readers.connection(), JobSelection(ids=[job]), everybody, 0, 1)
    readers.close()
    return JobSummary(*row)


def turn(ask: Callable[[], Any]) -> Any:
    """Here everything is one thread."""
    return ask()


def why_job(bench: Bench, job: int) -> Why:
    """As the route does it."""

    def take(tx: Transaction) -> why_answer.WaitSnapshot:
        closed = closed_ces(bench.pool.policy, tx.connection, bench.now)
        return why_answer.take_snapshot(bench.pool, tx, bench.now, turn, closed)

    found = bench.do(take)
    readers = bench.readers()
    answer = why_answer.why_job(found, readers.connection(), summary(bench, job), bench.now)
    readers.close()
    return answer


def why_queue(bench: Bench, queue: int) -> Why:
    found = bench.do(lambda tx: why_answer.take_snapshot(bench.pool, tx, bench.now, turn))
    return why_answer.why_queue(found, bench.connection, QueueId(queue), bench.now)


def queue_of(bench: Bench, job: int) -> QueueId:
    return QueueId(bench.job(job)["queue_id"])


def new_policy(bench: Bench, text: str) -> None:
    policy = policies.parse(text)
    bench.do(lambda tx: apply_policy(bench.pool, tx, policy, text, by="a", reason="", now=bench.now))


def look(bench: Bench, looker: wait_history.WaitRecorder | None = None) -> None:
    """One cycle of the duty."""
    pool = bench.pool
    if pool.queues.recorded_reasons is None:
        bench.set("queues", recorded_reasons=wait_history.last_reasons(bench.connection))
    found = bench.do(lambda tx: why_answer.take_snapshot(pool, tx, bench.now, turn))
    rows = (looker or wait_history.WaitRecorder()).changes(found, bench.connection, bench.now)
    bench.do(lambda tx: wait_history.write(pool.queues, tx, rows))


def order(bench: Bench, ce: str = "local", **node: Any) -> list[Any]:
    director = CeDirector(ce, LocalOrders(replace(NODE, **node)), local=True)
    return bench.do(lambda tx: order_pilots(director, bench.pool, tx, bench.now))


def texts(answer: Why) -> list[str]:
    return [one.text for one in answer.openings]


def applied(fields: dict[str, Any], opening: Opening) -> dict[str, Any]:
    """The job description with the change that `why` names."""
    name, value = opening.attribute, opening.value
    before = fields.get(name, ())
    if name in ("cpu_time", "memory", "processors"):
        return {**fields, name: int(value)}
    if name in ("setup", "job_type", "requirements"):
        return {**fields, name: value}
    if name == "force_generic":
        return {**fields, name: False}
    if value in before:
        return {**fields, name: tuple(one for one in before if one != value)}
    return {**fields, name: (*before, value)}


# --- each change that is named lets the job start

SMALL = {"processors": 2, "memory": 3500, "cpu_left": 6000.0, "platform": "el9"}

CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    # What the job asks for, what the node of CE `local` has, what must be named among others.
    "memory": ({"memory": 16384}, {}, {"memory <= 3072 MB"}),
    "processors": ({"processors": 8}, {}, {"processors <= 2"}),
    "cpu_time": ({"cpu_time": 200000}, {}, {"CPU time <= 5000 s"}),
    "sites": ({"sites": ("there",), "job_type": "Merge"}, {}, {"site here allowed too"}),
    "banned_sites": ({"banned_sites": ("here",), "tags": ("x",)}, {"tags": ["x"]}, {"site here not banned by the job"}),
    "grid_ces": ({"grid_ces": ("home",)}, {}, {"CE local allowed too"}),
    "platforms": ({"platforms": ("el8",)}, {}, {"platform el9 allowed too"}),
    "tag dropped": ({"tags": ("ssd",)}, {}, {"without the tag ssd"}),
    "requirements": ({"requirements": "target.Glibc >= 2.3"}, {}, {"without its Requirements"}),
    "setup": ({"setup": "production"}, {}, {"no setup"}),
    "pilot_types": ({"pilot_types": ("private",)}, {}, {"generic pilots allowed too"}),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
def test_each_change_that_is_named_lets_the_job_start(make: MakeBench, case: str) -> None:
    fields, node, expected = CHANGES[case]
    bench = make(TWO_SITES)
    [job] = bench.submit(**fields)
    pilot = bench.pilot(processors=2)
    node = {**SMALL, **node}
    assert pilot.take(**node) == []
    answer = why_job(bench, job)
    assert answer.reason == Reason.NEEDS
    assert expected <= set(texts(answer))
    for opening in answer.openings:
        assert opening.sites == {"here": opening.slots}
        [changed] = bench.submit(**applied(fields, opening))
        [offer] = pilot.take(**node)
        assert offer.job == changed, opening.text
        assert bench.state(job) == "Waiting"
        pilot.release(offer)
        bench.act("kill", changed)


def test_a_tag_that_the_ce_asks_for_and_a_job_type_that_the_site_takes(make: MakeBench) -> None:
    bench = make(TWO_SITES)
    asks: dict[str, Any] = {"sites": ("there",), "setup": "production"}
    [without_tag] = bench.submit(**asks, job_type="Merge")
    [wrong_type] = bench.submit(**asks, job_type="User", tags=("gpu",))
    [wrong_setup] = bench.submit(sites=("there",), job_type="Merge", tags=("gpu",))
    pilot = bench.pilot("far")
    assert pilot.take() == []
    for job, fields, text in (
        (without_tag, {**asks, "job_type": "Merge"}, "with the tag gpu"),
        (wrong_type, {**asks, "tags": ("gpu",)}, "job type Merge"),
        (wrong_setup, {"sites": ("there",), "job_type": "Merge", "tags": ("gpu",)}, "setup production"),
    ):
        [opening] = why_job(bench, job).openings
        assert (opening.text, opening.sites) == (text, {"there": 1})
        [changed] = bench.submit(**applied(fields, opening))
        [offer] = pilot.take()
        assert offer.job == changed
        pilot.release(offer)
        bench.act("kill", changed)


def test_tags_are_named(make: MakeBench) -> None:
    bench = make(
        POLICY.replace("[ces.local]", '[ces.local]\ntags = ["gold", "ssd"]\nrequired_tags = ["gold"]')
    )
    [poor] = bench.submit()
    [rich] = bench.submit(tags=("gold", "silk"))
    [richer] = bench.submit(tags=("gold", "silk", "jade"))
    bench.pilot().take()
    answer = why_job(bench, poor)
    assert (answer.detail, texts(answer)) == ("required-tags", ["with the tag gold"])
    assert answer.summary.endswith("the tag gold is required there but not among the job's tags")
    assert answer.advice == "submit the job with the tag gold: it then fits 1 slot at site here"
    assert why_job(bench, rich).summary.endswith("the tag silk is requested but not offered")
    assert why_job(bench, richer).summary.endswith("the tags jade, silk are requested but not offered")


def test_a_ce_that_requires_what_it_does_not_offer_serves_nobody(make: MakeBench) -> None:
    bench = make(POLICY.replace("[ces.local]", '[ces.local]\nrequired_tags = ["gold"]'))
    [poor], [rich] = bench.submit(), bench.submit(tags=("gold",))
    bench.pilot().take()
    answer = why_job(bench, poor)
    assert answer.openings == []
    assert "the tag gold is required there" in answer.summary
    assert "CE local requires the tag gold, but does not offer it, so no job can start there" in answer.advice
    assert "the tag gold is requested but not offered" in why_job(bench, rich).summary


def test_force_generic_keeps_a_private_pilot_away(bench: Bench) -> None:
    [job] = bench.submit(force_generic=True)
    pilot = bench.pilot(pilot_type="private")
    bench.connection.execute("UPDATE pilots SET owner = 'alice', grp = 'physics'")
    bench.do(lambda tx: bench.pool.pilots.rows.clear())
    assert pilot.take() == []
    [opening] = why_job(bench, job).openings
    assert opening.text == "without ForceGeneric"
    [fitting] = why_job(bench, bench.submit()[0]).standings
    assert fitting.serves == "alice (physics)"
    [changed] = bench.submit(**applied({"force_generic": True}, opening))
    assert [offer.job for offer in pilot.take()] == [changed]


def test_no_single_change_helps_where_two_things_are_wrong(bench: Bench) -> None:
    [job] = bench.submit(memory=16384, tags=("gpu",))
    bench.pilot().take()
    answer = why_job(bench, job)
    assert answer.openings == []
    assert "no single change" in answer.advice
    [site] = answer.refused
    assert (site.site, site.offers) == ("here", 1)
    assert site.conditions == site.takes == {"tags": 1, "memory": 1}
    assert answer.detail == "tags, memory"


def test_slots_of_a_ce_with_known_capacity_are_not_counted_again_from_its_pilots(bench: Bench) -> None:
    [job] = bench.submit(memory=16384)
    order(bench, processors=8, memory=12288)
    [before] = [one for one in why_job(bench, job).openings if one.text == "memory <= 12288 MB"]
    bench.pilot(processors=8).take(processors=8, memory=12288)
    answer = why_job(bench, job)
    [after] = [one for one in answer.openings if one.text == "memory <= 12288 MB"]
    assert (before.slots, after.slots) == (1, 1)
    assert answer.refused[0].offers == 2


def test_under_a_ban_the_site_is_closed_and_when_it_is_lifted_it_is_not(bench: Bench) -> None:
    [job] = bench.submit()
    bench.pilot(processors=4)
    pilot = bench.pilot()
    new_policy(bench, POLICY.replace("[sites.here]", "[sites.here]\nbanned = true"))
    assert pilot.take() == []
    answer = why_job(bench, job)
    assert (answer.reason, answer.detail) == (Reason.NEEDS, "site-closed")
    assert "banned in the policy" in answer.summary
    assert answer.openings == []
    new_policy(bench, POLICY)
    assert why_job(bench, job).reason != Reason.NEEDS
    assert len(pilot.take()) == 1


def test_an_absent_site_is_not_told_as_a_ban(make: MakeBench) -> None:
    bench = make(TWO_SITES)
    asks: dict[str, Any] = {"sites": ("there",), "setup": "production", "tags": ("gpu",), "job_type": "Merge"}
    [job] = bench.submit(**asks)
    pilot = bench.pilot("far")
    pilot.release(pilot.take()[0])
    no_ce = TWO_SITES[: TWO_SITES.index("[ces.far]")]
    no_site = no_ce[: no_ce.index("[sites.there]")]
    banned = TWO_SITES.replace("[sites.there]", "[sites.there]\nbanned = true")
    for policy, said, help_ in (
        (no_ce, "the CE far is no longer in the policy", "restore the CE"),
        (no_site, "the site there is no longer in the policy", "restore the site"),
        (banned, "the site there is banned", "lift the ban"),
    ):
        new_policy(bench, policy)
        answer = why_job(bench, job)
        assert answer.detail == "site-closed"
        assert answer.summary.startswith(f"no known node fits: {said}"), answer.summary
        assert help_ in answer.advice
        assert (answer.summary + answer.advice).count("ban") == 2 * ("banned" in said)


def test_offers_above_the_present_size_of_the_ce_are_left_out(bench: Bench) -> None:
    [job] = bench.submit(memory=16384)
    order(bench, processors=2, memory=8192)
    bench.pilot(processors=2).take(processors=2, memory=8192)
    bench.pilot().take(processors=1, memory=4096)
    assert why_job(bench, job).refused[0].offers == 3
    order(bench, processors=1, memory=8192)
    assert why_job(bench, job).refused[0].offers == 2
    order(bench, processors=1, memory=3072)
    answer = why_job(bench, job)
    assert answer.refused[0].offers == 1
    assert texts(answer) == ["memory <= 3072 MB"]


def test_needs_name_the_bucket_and_the_requested_number(bench: Bench) -> None:
    [uneven] = bench.submit(memory=17000, cpu_time=108_000)
    [even] = bench.submit(memory=16384, cpu_time=5000)
    [long] = bench.submit(cpu_time=400_000)
    needs = why_job(bench, uneven).needs
    assert needs["memory"] == "24576 MB (next bucket above the requested 17000 MB)"
    assert needs["CPU time"] == "300000 s (next bucket above the requested 108000 s)"
    needs = why_queue(bench, queue_of(bench, uneven)).needs
    assert (needs["memory"], needs["CPU time"]) == ("bucket 24576 MB", "bucket 300000 s")
    needs = why_job(bench, even).needs
    assert (needs["memory"], needs["CPU time"]) == ("16384 MB", "5000 s")
    assert why_job(bench, long).needs["CPU time"] == "300000 s (highest bucket; 400000 s requested)"
    [nothing] = bench.submit(cpu_time=0)
    assert why_job(bench, nothing).needs["CPU time"] == "none requested (bucket 500 s)"
    assert "memory" not in why_job(bench, nothing).needs


# --- what jobs do that do not wait


def test_why_tells_the_state_of_a_job_that_does_not_wait(bench: Bench) -> None:
    first, second, third = bench.submit(3, retries=1)
    pilot = bench.pilot()
    offer = pilot.hold()
    job = offer.job
    answer = why_job(bench, job)
    assert (answer.state, answer.reason, answer.openings) == ("Running", "", [])
    assert f"pilot {pilot.id} at site here" in answer.summary
    pilot.finish(offer, exit_code=1)
    answer = why_job(bench, job)
    assert answer.state == "Rescheduled"
    assert answer.until == bench.now + RETRY_DELAY
    assert f"in {RETRY_DELAY:.0f} s" in answer.summary
    bench.later(RETRY_DELAY)
    assert why_job(bench, job).reason
    rest = [one for one in (first, second, third) if one != job]
    bench.act("kill", rest[0])
    answer = why_job(bench, rest[0])
    assert (answer.state, answer.reason) == ("Killed", "")
    assert "has ended" in answer.summary
    [offer] = pilot.take()
    assert "about to start" in why_job(bench, offer.job).summary


def test_a_job_that_is_being_created(bench: Bench) -> None:
    submission = bench.accept(bench.prepared(3))
    promised = wait_reasons.find_unmade_job(bench.connection, submission.first_job + 2)
    assert promised == (submission.id, "alice", "physics")
    assert wait_reasons.find_unmade_job(bench.connection, submission.first_job + 3) is None
    bench.make(submission)
    assert wait_reasons.find_unmade_job(bench.connection, submission.first_job) is None
    assert why_answer.being_created(2, 1).state == "Submitting"


def test_a_queue_in_which_nothing_waits(bench: Bench) -> None:
    [job] = bench.submit()
    queue = queue_of(bench, job)
    bench.act("kill", job)
    answer = why_queue(bench, queue)
    assert (answer.reason, answer.waiting, answer.needs["owner"]) == ("", 0, "alice")
    bench.crash()
    assert why_queue(bench, queue).summary == f"no job waits in queue {queue}"


# --- the reasons


def test_a_job_without_any_offer_has_the_reason_no_offer(bench: Bench) -> None:
    [job] = bench.submit()
    assert why_job(bench, job).reason == Reason.NO_OFFER


def test_draining(bench: Bench) -> None:
    [job] = bench.submit()
    bench.set("server", draining=True)
    assert why_job(bench, job).reason == Reason.DRAINING


def test_a_group_that_is_removed_while_its_jobs_wait(bench: Bench) -> None:
    pilot = bench.pilot(processors=4)
    kept, moved = bench.submit()[0], bench.submit(owner="bob")[0]
    without_bob = POLICY.replace(
        '[users.bob]\ngroups = ["physics", "sharing"]', '[users.bob]\ngroups = ["sharing"]'
    )
    without_physics = POLICY.replace("[groups.physics]\nshare = 1000\n", "").replace('"physics", ', "")
    new_policy(bench, without_bob)
    answer = why_job(bench, moved)
    assert answer.reason == Reason.MEMBERSHIP
    assert "no longer has bob in the group physics" in answer.summary
    assert why_job(bench, kept).reason != Reason.MEMBERSHIP
    new_policy(bench, without_physics)
    for job in (kept, moved):
        assert "no longer has the group physics" in why_job(bench, job).summary
    assert pilot.send(take=pilot.asked(4, processors=4)).no_match == {"membership": 2}
    bench.later(3600)
    assert [bench.state(job) for job in (kept, moved)] == ["Waiting", "Waiting"]
    new_policy(bench, POLICY)
    assert why_job(bench, moved).reason != Reason.MEMBERSHIP
    assert [offer.job for offer in pilot.take(4, processors=4)] in ([kept], [moved])


def test_a_running_limit(make: MakeBench) -> None:
    bench = make(LIMITED)
    jobs = bench.submit(2, owner="bob")
    pilot = bench.pilot(processors=2)
    [offer] = pilot.take(2, processors=2)
    [left] = [job for job in jobs if job != offer.job]
    answer = why_job(bench, left)
    assert answer.reason == Reason.LIMIT
    [limit] = answer.limits
    assert (limit.running, limit.most, limit.wait) == (1, 1, 0.0)
    assert limit.text == answer.detail == "owner bob at site here: at most 1 running"
    assert answer.advice == "the limit allows the next start when the running job ends"
    pilot.confirm(offer)
    pilot.finish(offer)
    assert why_job(bench, left).limits == []
    assert [offer.job for offer in pilot.take()] == [left]


def test_a_start_delay(make: MakeBench) -> None:
    bench = make(DELAYED)
    jobs = bench.submit(2, job_type="Merge")
    pilot = bench.pilot(processors=2)
    [offer] = pilot.take(2, processors=2)
    [left] = [job for job in jobs if job != offer.job]
    bench.now += 20
    answer = why_job(bench, left)
    assert answer.reason == Reason.LIMIT
    assert [limit.wait for limit in answer.limits] == [pytest.approx(40.0)]
    assert answer.advice == "the limit allows the next start in 40 s, at 1970-01-01 00:17:40 UTC"
    bench.now += 40
    assert why_job(bench, left).limits == []
    assert [offer.job for offer in pilot.take(processors=1)] == [left]


def test_a_limit_of_nothing_never_opens(make: MakeBench) -> None:
    bench = make(LIMITED.replace("running = 1", "running = 0"))
    [job] = bench.submit(owner="bob")
    bench.pilot().take()
    answer = why_job(bench, job)
    assert answer.reason == Reason.LIMIT
    assert answer.summary.startswith("a policy limit blocks every node that fits")
    assert "the limit allows 0 running jobs" in answer.advice


def test_a_limit_of_both_kinds(make: MakeBench) -> None:
    both = make(LIMITED.replace("running = 1", "running = 2\ndelay = 60\nburst = 2"))
    both.submit(3, owner="bob")
    assert len(both.pilot(processors=2).take(2, processors=2)) == 2
    [left] = [job for job in (1, 2, 3) if both.state(job) == "Waiting"]
    assert why_job(both, left).advice == (
        "the limit allows the next start when one of the 2 running jobs ends, but not within the next 60 s"
    )


def test_background(bench: Bench) -> None:
    [job] = bench.submit(user_priority=0, memory=1024)
    bench.submit(5)
    pilot = bench.pilot()
    pilot.take()
    assert why_job(bench, job).reason == Reason.BACKGROUND
    [promoted] = bench.submit(user_priority=1, memory=1024)
    assert why_job(bench, promoted).reason != Reason.BACKGROUND


def test_a_higher_bucket_goes_first_under_the_documents_rule_only(make: MakeBench) -> None:
    bench = make(DIRAC)
    [short] = bench.submit(cpu_time=500)
    bench.submit(4, cpu_time=5000, owner="bob")
    bench.submit(2, cpu_time=40000, owner="bob")
    pilot = bench.pilot()
    [offer] = pilot.take()
    answer = why_job(bench, short)
    assert (answer.reason, answer.detail) == (Reason.CPU_BUCKET, "50000 s")
    found = [(one.cpu_time, one.queues, one.jobs) for one in answer.standings[0].higher_buckets]
    assert found == [(50000, 1, 1), (5000, 1, 4)]
    assert "5 jobs in 2 queues" in answer.summary
    # As the answer says: whatever asks next is given those, not the short one.
    given = [pilot.take()[0].job for _ in range(5)]
    assert short not in given
    # That pilot is bob's by now.
    assert [one.job for one in bench.pilot().take()] == [short]
    assert offer.job != short


def test_groups_with_a_larger_share_are_ahead(make: MakeBench) -> None:
    bench = make(
        PROPORTIONAL.replace(
            "[users.alice]", "[groups.large]\nshare = 3000\n[users.carol]\ngroups = ['large']\n[users.alice]"
        )
    )
    [job] = bench.submit()
    bench.submit(3, owner="carol", group="large", user_priority=2)
    bench.submit(2, owner="alice", memory=1024)
    # Each time another pilot: one that has served somebody makes another kind of offer.
    while (offer := (pilot := bench.pilot()).take()[0]).payload.owner != "carol":
        pilot.release(offer)
    bench.do(lambda _: apply_priorities(bench.pool.queues))
    answer = why_job(bench, job)
    assert answer.reason == Reason.SHARE
    [stands] = answer.standings
    assert (stands.ce, stands.queues, stands.ahead, stands.possible) == ("local", 3, 1, False)
    assert stands.ours == pytest.approx(1000)
    [rival] = stands.rivals
    assert (rival.owner, rival.group) == ("carol", "large")
    assert rival.ratio == pytest.approx(rival.priority / stands.ours) == pytest.approx(3.0)
    assert stands.chance == pytest.approx(stands.priority / (rival.priority + stands.ours))


def test_its_place_in_the_queue(bench: Bench) -> None:
    jobs = bench.submit(5)
    bench.submit(3, user_priority=4)
    bench.submit(2, user_priority=0)
    bench.pilot()
    order(bench)
    place = why_job(bench, jobs[3]).in_queue
    assert place is not None
    assert (place.higher, place.older) == (3, 3)


def test_the_queue_before_a_job_is_named_first(bench: Bench) -> None:
    """A pilot is coming, and it is not for this job."""
    bench.submit(50, cpu_time=5000)
    [_, last] = bench.submit(2)
    order(bench)
    answer = why_job(bench, last)
    assert answer.reason == Reason.PILOT
    assert answer.summary.startswith(
        "1 job of its queue goes before it and 50 jobs of other queues wait for the same nodes; a pilot was submitted"
    )
    assert answer.in_queue == PlaceInQueue(0, 1, others=50, queues=1)


def test_a_lower_priority_of_the_same_owner_has_no_chance_meanwhile(bench: Bench) -> None:
    [low], [high], [other] = (
        bench.submit(),
        bench.submit(user_priority=10, cpu_time=5000),
        bench.submit(owner="bob"),
    )
    while not bench.do(lambda _: apply_priorities(bench.pool.queues)):
        pass
    order(bench)
    chances = [why_job(bench, job).standings[0].chance for job in (low, high, other)]
    assert chances == pytest.approx([0.0, 0.5, 0.5])


def test_a_site_that_the_job_names_and_that_is_down_is_opened_first(make: MakeBench) -> None:
    """Another site would take the job, but the job does not ask for it."""
    bench = make(POLICY + '[sites.attic]\n[ces.up]\nsite = "attic"\nowners = "any"\n')
    [job], [anywhere] = bench.submit(sites=("attic",)), bench.submit(memory=16384)
    order(bench)
    order(bench, "up")
    bench.do(
        lambda tx: set_site_state(
            bench.pool, tx, "attic", SiteState.DOWN, by="ada", reason="cooling", until=None, now=bench.now
        )
    )
    answer = why_job(bench, job)
    assert answer.detail == "site-closed"
    assert "`pilotage site enable attic`" in answer.advice
    assert [found.text for found in answer.openings]
    assert why_job(bench, anywhere).detail == "memory"


def test_a_pilot_was_asked_for_or_is_held_back_or_there_is_no_room(bench: Bench) -> None:
    [job] = bench.submit()
    director = CeDirector("local", LocalOrders(replace(NODE, processors=1)), local=True)
    [ordered] = bench.do(lambda tx: order_pilots(director, bench.pool, tx, bench.now))
    answer = why_job(bench, job)
    assert (answer.reason, answer.detail) == (Reason.PILOT, "local")
    [ce] = answer.pilots
    assert (ce.ce, ce.pilots, ce.ordered) == ("local", {"Submitted": 1}, 1)
    director.memory.trouble, director.memory.not_before = "pilots end without calling home", bench.now + 100
    bench.connection.execute(
        "UPDATE pilots SET state = 'Aborted', ended = 1 WHERE id = ?", (ordered.members[0],)
    )
    assert bench.do(lambda tx: order_pilots(director, bench.pool, tx, bench.now)) == []
    answer = why_job(bench, job)
    assert (answer.reason, answer.detail) == (
        Reason.CE,
        "CE local is paused: pilots end without calling home",
    )
    assert answer.pilots[0].not_before == bench.now + 100
    assert "never contacted the server" in answer.advice
    bench.do(director.memory.end_pause)
    busy = bench.pilot(processors=1)
    assert busy.take()[0].job == job
    [second] = bench.submit()
    bench.do(lambda tx: order_pilots(director, bench.pool, tx, bench.now))
    answer = why_job(bench, second)
    assert answer.reason == Reason.SLOTS
    assert (answer.pilots[0].cores, answer.pilots[0].used) == (1, 1)
    assert "1 pilot uses the only core of local" in answer.summary


@pytest.mark.parametrize(
    ("progress", "switch", "detail"),
    [
        ({}, CeSwitch.DISABLED, "disabled: maintenance"),
        ({}, CeSwitch.STOPPED, "stopped: maintenance"),
        ({"not_before": 50.0, "trouble": "x"}, CeSwitch.STOPPED, "stopped: maintenance"),
        (
            {"unreachable": "squeue is not installed here"},
            CeSwitch.ON,
            "unreachable: squeue is not installed here",
        ),
        (
            {"not_before": 50.0, "trouble": "AssocMaxSubmitJobLimit"},
            CeSwitch.ON,
            "paused: AssocMaxSubmitJobLimit",
        ),
    ],
)
def test_the_only_ces_that_a_job_fits_get_no_pilots(
    make: MakeBench, progress: dict[str, Any], switch: CeSwitch, detail: str
) -> None:
    bench = make(TWO_CES)
    order(bench)
    bench.do(
        lambda tx: order_pilots(
            CeDirector("second", LocalOrders(NODE), local=True), bench.pool, tx, bench.now
        )
    )
    [job], [choosy] = bench.submit(), bench.submit(grid_ces=("local",))
    assert {why_job(bench, one).reason for one in (job, choosy)} == {Reason.SLOTS}
    late = {key: bench.now + value if key == "not_before" else value for key, value in progress.items()}
    bench.do(lambda tx: ces.save_progress(tx.connection, "local", CeProgress(**late)))
    if switch is not CeSwitch.ON:
        change: dict[str, Any] = {"by": "ada", "reason": "maintenance", "now": bench.now}
        bench.do(lambda tx: switch_ce(bench.pool.ids, tx, "local", switch, **change))
    answer = why_job(bench, choosy)
    assert (answer.reason, answer.detail) == (Reason.CE, f"CE local is {detail}")
    assert detail in answer.summary
    assert "pilotage ce show local" in answer.advice
    if switch is not CeSwitch.ON:
        assert "`pilotage ce enable local`" in answer.advice
        assert answer.pilots[0].switched_off
    assert why_job(bench, job).reason == Reason.SLOTS, "the second CE gets pilots"


def test_the_home_owners_ce_refuses_others_by_owner(bench: Bench) -> None:
    order(bench, "home")
    [job] = bench.submit(owner="bob")
    answer = why_job(bench, job)
    assert (answer.reason, answer.detail) == (Reason.NEEDS, "owner")
    assert "other owners" in answer.summary
    [mine] = bench.submit(owner=HOME_OWNER)
    assert why_job(bench, mine).reason == Reason.SLOTS


def test_a_failed_transaction_leaves_no_kind_behind(bench: Bench) -> None:
    bench.submit()
    pilot = bench.pilot()
    asking = pilot.asking(pilot.request(take=pilot.asked()))

    def fails(tx: object) -> None:
        raise RuntimeError

    bench.together(asking, fails)
    [kind] = bench.pool.offers.stats.recent(bench.now)
    assert (kind.takes, kind.given) == (1, 1)


# --- the history


def kept(bench: Bench, queue: int) -> list[tuple[str, str, float]]:
    return [
        (row.reason, row.detail, row.since)
        for row in wait_reasons.history(bench.connection, QueueId(queue), 99)
    ]


def test_the_history_of_a_queue_through_many_reasons(make: MakeBench) -> None:
    bench = make(DIRAC)
    [job] = bench.submit(cpu_time=500, memory=3072)
    queue = queue_of(bench, job)
    begin = bench.now

    def after(seconds: float = 30.0) -> None:
        bench.now += seconds
        look(bench)

    look(bench)
    pilot = bench.pilot()
    pilot.take(memory=2048)
    after()
    after()  # nothing has changed: nothing is written
    pilot.send(leaving="idle")
    order(bench)
    after()
    new_policy(bench, DIRAC.replace("[groups.physics]\nshare = 1000\n", "").replace('"physics", ', ""))
    after()
    new_policy(bench, DIRAC)
    bench.submit(3, cpu_time=5000, owner="bob")
    assert len(bench.pilot().take()) == 1
    after()
    bench.set("server", draining=True)
    after()
    bench.set("server", draining=False)
    bench.act("kill", job)
    after()
    found = kept(bench, queue)
    assert [(reason, since - begin) for reason, _, since in found] == [
        ("no-offer", 0), ("needs", 30), ("pilot", 90), ("membership", 120), ("cpu-bucket", 150),
        ("draining", 180), ("", 210),
    ]  # fmt: skip
    assert found[1][1] == "memory"
    spans = [(one.reason, one.until) for one in why_queue(bench, queue).history]
    assert spans[0] == ("no-offer", begin + 30)
    assert spans[-1] == ("", None)


def test_slots_background_share_and_limit_are_kept_too(make: MakeBench) -> None:
    bench = make(LIMITED + '[matching]\nrule = "proportional"\n')

    def now(job: int) -> str:
        return kept(bench, queue_of(bench, job))[-1][0]

    def after() -> None:
        bench.now += 30
        look(bench)

    pilot = bench.pilot(processors=4)
    assert pilot.take() == []
    bench.now += 30
    [alone] = bench.submit()
    after()
    assert now(alone) == "slots"
    [quiet] = bench.submit(user_priority=0, memory=1024)
    after()
    assert (now(alone), now(quiet)) == ("slots", "background")
    [rival] = bench.submit(memory=2048)
    after()
    assert (now(alone), now(rival)) == ("slots", "slots"), "nobody has asked since"
    while (offer := pilot.take()[0]).job != rival:
        pilot.release(offer)
    more = bench.submit(memory=2048)
    after()
    assert (now(alone), now(more[0]), now(quiet)) == ("share", "share", "background")
    of_bob = bench.submit(2, owner="bob")
    assert len(bench.pilot(only_owner="bob").take()) == 1
    after()
    assert now(of_bob[0]) == "limit"


def test_takes_from_before_the_jobs_came_say_nothing_of_them(make: MakeBench) -> None:
    bench = make(PROPORTIONAL)
    order(bench, processors=2)
    bench.submit(2)
    pilots = [bench.pilot(processors=1), bench.pilot(processors=1)]
    assert [len(pilot.take()) for pilot in pilots] == [1, 1]
    order(bench, processors=2)
    bench.now += 3
    [job], [rival] = bench.submit(owner="bob"), bench.submit(memory=1024)
    for seconds in (1, 2, 30, 30):
        bench.now += seconds
        answer = why_job(bench, job)
        assert (answer.reason, answer.detail) == (Reason.SLOTS, ""), seconds
        assert "use all 2 cores" in answer.summary
        look(bench)
    for one in (job, rival):
        assert [row[:2] for row in kept(bench, queue_of(bench, one))] == [("slots", "")]
    while (offer := (free := bench.pilot()).take()[0]).job == job:
        free.release(offer)
    bench.submit(memory=1024)
    look(bench)
    assert kept(bench, queue_of(bench, job))[-1][0] == why_job(bench, job).reason == Reason.SHARE


def test_the_sentence_of_a_share_is_of_the_draw_that_has_rivals(make: MakeBench) -> None:
    """The offer that was made most is bound to the owner, who has nobody beside there."""
    bench = make(PROPORTIONAL)
    bench.submit(3)
    mine = bench.pilot()
    for _ in range(3):
        mine.finish(mine.hold())
    for _ in range(20):
        mine.take()
    bench.now += 100
    [job] = bench.submit()
    bench.submit(3, owner="bob")
    while (offer := (free := bench.pilot()).take()[0]).payload.owner == "alice":
        free.release(offer)
    answer = why_job(bench, job)
    assert answer.reason == Reason.SHARE
    assert "with 1 other queue" in answer.summary
    assert "100 %" not in answer.advice
    assert [one.queues for one in answer.standings] == [2, 1]
    assert answer.standings[0].takes < answer.standings[1].takes
    assert [one.serves for one in answer.standings] == ["", "alice"]


def test_a_restart_continues_the_history(bench: Bench) -> None:
    [job] = bench.submit(memory=16384)
    queue = queue_of(bench, job)
    pilot = bench.pilot()
    pilot.take()
    look(bench)
    begin = bench.now
    pilot.send(leaving="idle")
    bench.now += 500
    bench.crash()
    assert bench.pool.queues.recorded_reasons is None
    order(bench)
    look(bench)
    assert kept(bench, queue) == [("needs", "memory", begin)]
    assert bench.pool.queues.recorded_reasons is not None
    assert bench.pool.queues.recorded_reasons[queue].began == begin
    bench.now += 30
    order(bench, memory=32768)
    look(bench)
    assert [row[0] for row in kept(bench, queue)] == ["needs", "pilot"]
    bench.crash()
    assert wait_history.last_reasons(bench.connection)[queue].began == begin


def test_a_new_wait_starts_a_new_history(bench: Bench) -> None:
    [job] = bench.submit()
    queue = queue_of(bench, job)
    look(bench)
    bench.act("kill", job)
    bench.now += 30
    look(bench)
    bench.submit()
    bench.now += 30
    look(bench)
    assert bench.pool.queues.recorded_reasons is not None
    assert bench.pool.queues.recorded_reasons[queue].began == bench.now
    assert [row[0] for row in kept(bench, queue)] == ["no-offer", "", "no-offer"]
    assert wait_history.last_reasons(bench.connection) == bench.pool.queues.recorded_reasons


def test_the_history_goes_with_its_queue(bench: Bench) -> None:
    [job] = bench.submit()
    [stays] = bench.submit(memory=2048)
    queue, other = queue_of(bench, job), queue_of(bench, stays)
    look(bench)
    bench.act("kill", job)
    look(bench)
    bench.do(lambda tx: submissions.mark_empty_queues(tx.connection, bench.now))
    bench.now += 100_000
    gone = bench.do(lambda tx: submissions.delete_empty_queues(tx.connection, bench.now))
    assert gone == [queue]
    bench.do(lambda tx: bench.pool.forget_queues(tx, gone))
    assert kept(bench, queue) == []
    assert len(kept(bench, other)) == 1
    look(bench)
    assert kept(bench, queue) == []


def test_a_look_that_takes_long_goes_on_where_it_stopped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [bench.submit(memory=memory)[0] for memory in (600, 1024, 2048, 3072, 4096)]
    bench.pilot().take(memory=100)
    monkeypatch.setattr(wait_history, "MAX_EVALUATIONS", 3)
    looker = wait_history.WaitRecorder()
    done = []
    for _ in range(6):
        look(bench, looker)
        done.append(sum(len(kept(bench, queue_of(bench, job))) for job in jobs))
    assert done[0] < 5
    assert done[-1] == 5
    assert done == sorted(done)


def test_no_more_rows_than_bounded_are_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_reasons, "KEPT_ROWS", 3)
    [job] = bench.submit()
    for round_ in range(8):
        bench.set("server", draining=bool(round_ % 2))
        bench.now += 30
        look(bench)
    assert [row[0] for row in kept(bench, queue_of(bench, job))] == ["draining", "no-offer", "draining"]


def test_a_failed_write_leaves_the_memory_as_it_was(bench: Bench) -> None:
    [job] = bench.submit()
    queue = queue_of(bench, job)
    bench.set("queues", recorded_reasons={})
    row = wait_reasons.ReasonRow(queue, bench.now, "needs", "memory")

    def fails(tx: Any) -> None:
        wait_history.write(bench.pool.queues, tx, [row])
        raise RuntimeError

    with pytest.raises(RuntimeError):
        bench.do(fails)
    assert bench.pool.queues.recorded_reasons == {}
    assert kept(bench, queue) == []


def test_reasons_that_were_forgotten_since_the_look_are_not_stored(bench: Bench) -> None:
    """Another server has had the duty meanwhile."""
    [job] = bench.submit()
    queue = queue_of(bench, job)
    bench.set("queues", recorded_reasons=None)
    row = wait_reasons.ReasonRow(queue, bench.now, "needs", "memory")
    bench.do(lambda tx: wait_history.write(bench.pool.queues, tx, [row]))
    assert kept(bench, queue) == []


def test_a_closed_site_is_named_only_where_nothing_else_is_as_near(make: MakeBench) -> None:
    bench = make(POLICY + '[sites.attic]\nbanned = true\n[ces.up]\nsite = "attic"\nowners = "any"\n')
    [large] = bench.submit(memory=16384)
    [only_there] = bench.submit(memory=6144, sites=("attic",))
    order(bench)
    order(bench, "up", memory=65536)
    assert why_job(bench, large).detail == "memory"
    answer = why_job(bench, only_there)
    assert answer.detail == "site-closed"
    assert "lift the ban" in answer.advice


def test_openings_of_a_possible_offer_match_the_directors_orders(bench: Bench) -> None:
    """A pilot gets memory by its processors: one for a job that asks for much must be wide enough."""
    [job] = bench.submit(memory=16384)
    order(bench, processors=4, memory=8192)
    assert texts(why_job(bench, job)) == ["memory <= 2048 MB", "memory <= 8192 MB"]
    for memory, width in ((8192, 4), (4096, 2), (3072, 2), (2048, 1)):
        [changed] = bench.submit(memory=memory)
        [ordered] = order(bench, processors=4, memory=8192)
        assert ordered.order.shape[:2] == (width, 2048 * width)
        bench.connection.execute("UPDATE pilots SET state = 'Aborted', ended = 1")
        pilot = bench.pilot(processors=width, memory=2048 * width)
        assert [offer.job for offer in pilot.take(processors=width, memory=8192)] == [changed]
        pilot.send(leaving="idle")
        bench.act("kill", changed)


def test_pilots_that_are_bound_to_others_are_told(make: MakeBench) -> None:
    bench = make(PROPORTIONAL.replace("[ces.local]", "[ces.local]\nquantum = 10000"))
    bench.submit(5)
    pilot = bench.pilot()
    assert pilot.hold().payload.owner == "alice"
    bench.now += 100
    [job] = bench.submit(owner="bob")
    assert len(pilot.take()) == 1
    answer = why_job(bench, job)
    assert (answer.reason, answer.detail) == (Reason.SLOTS, "pilots serve alice")
    assert "serve alice only" in answer.summary
    look(bench)
    bench.now += 1000
    assert why_job(bench, job).detail == "pilots serve alice", "since it began to wait"
    while (offer := (free := bench.pilot()).take()[0]).job == job:
        free.release(offer)
    assert why_job(bench, job).reason == Reason.SHARE
    bench.now += 61
    pilot.take()
    assert why_job(bench, job).detail == "pilots serve alice"


def test_the_beginning_of_a_wait_is_kept_while_its_reason_changes(bench: Bench) -> None:
    [job] = bench.submit(memory=16384)
    begin = bench.now
    look(bench)
    bench.now += 30
    bench.pilot().take()
    look(bench)
    assert [row[0] for row in kept(bench, queue_of(bench, job))] == ["no-offer", "needs"]
    assert bench.pool.queues.recorded_reasons is not None
    assert bench.pool.queues.recorded_reasons[queue_of(bench, job)].began == begin


def test_requirements_that_refuse_are_told_by_ce_with_the_values(make: MakeBench) -> None:
    bench = make(TWO_CES)
    order(bench, "local")
    order(bench, "second")
    job = bench.submit(requirements="other.gluehostbenchmarksi000 > 5 && other.processors >= 1")[0]
    answer = why_job(bench, job)
    assert (answer.reason, answer.detail) == ("needs", "requirements")
    assert [row.ce for row in answer.requirements] == ["local", "second"]
    [refusal] = answer.requirements[0].refusals
    assert refusal.expression == "other.gluehostbenchmarksi000 > 5"
    assert (refusal.seen[0].name, refusal.seen[0].nearest) == (
        "gluehostbenchmarksi000",
        "GlueHostBenchmarkSI00",
    )
    assert "is GlueHostBenchmarkSI00 meant?" in answer.advice


def test_only_refusing_requirements_are_told(make: MakeBench) -> None:
    bench = make(POLICY)
    order(bench)
    job = bench.submit(requirements="other.processors >= 1", memory=10**6)[0]
    answer = why_job(bench, job)
    assert answer.reason == "needs"
    assert answer.requirements == []
