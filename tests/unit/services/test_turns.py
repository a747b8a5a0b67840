"""Shares between owners on pilots that serve one owner at a time, in virtual time: the real services and director."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pilotage.core.policy import parse
from pilotage.core.queues.rank import win_probability
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.local_orders import LocalOrders
from pilotage.services.director.ordering import order_pilots
from pilotage.services.shares.corrections import apply_priorities
from pilotage.services.shares.turns import begin_promised_turn, promised_turn
from pilotage.store.tables import listing
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import OfferedJob, Reference
from tests.unit.services.bench import NODE, Bench, Paper, finished

TEN_MINUTES = 600
START = 1
"""Seconds that a pilot needs to start."""

POLICY = """\
[matching]
rule = "{rule}"
[groups.users]
share = 3000
[groups.others]
share = 1000
[groups.production]
share = 2000
properties = ["NORMAL_USER", "JOB_SHARING"]
{users}
[sites.here]
[ces.local]
site = "here"
owners = "{owners}"
processors = {cores}
idle = 5
{more}
"""
PEOPLE = {
    "ann": "users",
    "ben": "users",
    "cat": "users",
    "dan": "others",
    "eve": "production",
    "fay": "production",
}


def policy(cores: int, rule: str = "proportional", more: str = "", owners: str = "any") -> str:
    users = "".join(f'[users.{name}]\ngroups = ["{group}"]\n' for name, group in PEOPLE.items())
    return POLICY.format(cores=cores, rule=rule, users=users, more=more, owners=owners)


@dataclass
class Pilot:
    """A pilot on one core: a job at a time, of so many seconds."""

    paper: Paper
    born: float
    held: OfferedJob | None = None
    ends: float = 0.0
    idle_since: float = 0.0
    leaving: str = ""


@dataclass
class Farm:
    """The CE, its director and its pilots. A step is a second."""

    bench: Bench
    cores: int
    seconds: dict[str, int] = field(default_factory=dict)
    """How long a job of each owner runs; 1 if it is not said."""
    use: Counter[str] = field(default_factory=Counter)
    """Core-seconds in which jobs ran, by owner."""
    pilots: list[Pilot] = field(default_factory=list)
    started: int = 0

    def __post_init__(self) -> None:
        self.director = CeDirector("local", LocalOrders(replace(NODE, processors=self.cores)), local=True)

    def submit(self, owner: str, count: int = 0) -> None:
        """By default as many jobs as the CE can run in ten minutes, and some more that wait."""
        count = count or self.cores * TEN_MINUTES + 200
        self.bench.submit(count, owner=owner, group=PEOPLE[owner])

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.step()

    def step(self) -> None:
        bench = self.bench
        while not bench.do(lambda _: apply_priorities(bench.pool.queues)):
            pass
        for ordered in bench.do(lambda tx: order_pilots(self.director, bench.pool, tx, bench.now)):
            self.started += 1
            pilot = Pilot(Paper(bench, ordered.secret), bench.now + START, idle_since=bench.now + START)
            self.pilots.append(pilot)
        assert len(self.pilots) <= self.cores
        for pilot in list(self.pilots):
            if pilot.born <= bench.now:
                self.act(pilot)
            if pilot.held is not None:
                self.use[pilot.held.payload.owner] += 1
        bench.now += 1.0

    def act(self, pilot: Pilot) -> None:
        """Report, take and confirm as the program does; leave when told to, or after five idle seconds."""
        paper, now = pilot.paper, self.bench.now
        if pilot.held is not None and pilot.ends > now:
            return
        finishes = [finished(pilot.held)] if pilot.held is not None else []
        pilot.held = None
        answer = paper.send(finishes=finishes, take=paper.asked(1, processors=1, cpu_left=1e6))
        if answer.take_number:
            paper.number = answer.take_number + 1
        for offer in answer.offers:
            paper.send(confirms=[Reference(offer.job, offer.epoch)])
            pilot.held = offer
            pilot.ends = now + self.seconds.get(offer.payload.owner, 1)
            pilot.idle_since = pilot.ends
        pilot.leaving = "told to leave" if answer.leave else "idle" if now - pilot.idle_since >= 5 else ""
        if pilot.leaving and pilot.held is None:
            paper.send(leaving=pilot.leaving)
            self.pilots.remove(pilot)

    def parts(self) -> dict[str, float]:
        whole = sum(self.use.values())
        return {owner: seconds / whole for owner, seconds in self.use.items()}


Make = Callable[..., Farm]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Bench] = []

    def one(cores: int, rule: str = "proportional", more: str = "", owners: str = "any") -> Farm:
        made.append(Bench(tmp_path, policy(cores, rule, more, owners)))
        return Farm(made[-1], cores)

    yield one
    for bench in made:
        bench.check()
        bench.close()


def near(found: dict[str, float], wanted: dict[str, float], within: float = 0.05) -> None:
    assert found.keys() == wanted.keys()
    for owner, part in wanted.items():
        assert abs(found[owner] - part) <= within, (found, wanted)


@pytest.mark.slow
@pytest.mark.parametrize(("cores", "more"), [(1, "quantum = 20"), (2, ""), (8, "")])
def test_three_users_of_a_group_have_their_shares_after_ten_minutes(
    make: Make, cores: int, more: str
) -> None:
    farm = make(cores, more=more)
    for owner in ("ann", "ben", "cat"):
        farm.submit(owner)
    farm.run(TEN_MINUTES)
    near(farm.parts(), dict.fromkeys(("ann", "ben", "cat"), 1 / 3))
    # Each switch costs the start of a pilot, so that there is at most one in each quantum.
    quanta = TEN_MINUTES / farm.bench.pool.policy.ces["local"].quantum
    assert farm.started <= cores * (quanta + 1)
    assert sum(farm.use.values()) >= 0.9 * cores * TEN_MINUTES


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["proportional", "dirac"])
@pytest.mark.parametrize(("cores", "more"), [(2, "quantum = 30"), (8, "")])
def test_two_groups_get_the_shares_of_the_rule(make: Make, cores: int, more: str, rule: str) -> None:
    farm = make(cores, rule, more)
    farm.submit("ann")
    farm.submit("dan")
    farm.run(TEN_MINUTES)
    ann = win_probability(3000, [1000], rule)  # type: ignore[arg-type]
    assert ann == pytest.approx(0.75 if rule == "proportional" else 5 / 6)
    near(farm.parts(), {"ann": ann, "dan": 1 - ann})


@pytest.mark.slow
def test_users_share_the_part_of_their_group(make: Make) -> None:
    """3000 to 1000 to 2000; two users share the first, two owners draw on the last together."""
    farm = make(8)
    for owner in ("ann", "ben", "dan", "eve", "fay"):
        farm.submit(owner)
    farm.run(TEN_MINUTES)
    near(farm.parts(), {"ann": 1 / 4, "ben": 1 / 4, "dan": 1 / 6, "eve": 1 / 6, "fay": 1 / 6})


@pytest.mark.slow
@pytest.mark.parametrize(("cores", "more"), [(2, "quantum = 20"), (8, "")])
def test_a_late_owner_gets_its_share_from_then_on(make: Make, cores: int, more: str) -> None:
    farm = make(cores, more=more)
    farm.submit("ann", 2 * cores * TEN_MINUTES)
    farm.run(TEN_MINUTES)
    assert farm.parts() == {"ann": 1.0}
    farm.use.clear()
    for owner in ("ben", "cat"):
        farm.submit(owner)
    farm.run(TEN_MINUTES)
    near(farm.parts(), dict.fromkeys(("ann", "ben", "cat"), 1 / 3))


@pytest.mark.slow
def test_longer_jobs_bring_no_larger_share(make: Make) -> None:
    """A turn ends with the job that runs, so that jobs of 20 s overstay it by ten seconds or so, and not more."""
    farm = make(8)
    farm.seconds = {"ann": 20}
    farm.submit("ann")
    farm.submit("ben")
    farm.run(TEN_MINUTES)
    near(farm.parts(), {"ann": 0.5, "ben": 0.5}, within=0.08)


@pytest.mark.slow
def test_somebody_with_few_jobs_now_and_then_does_not_wait_for_them_all(make: Make) -> None:
    farm = make(2, more="quantum = 20")
    farm.submit("ann", 3000)
    waited = []
    for _ in range(8):
        farm.submit("ben", 1)
        begun, ran = farm.bench.now, farm.use["ben"]
        while farm.use["ben"] == ran:
            farm.step()
            assert farm.bench.now - begun < 60
        waited.append(farm.bench.now - begun)
        farm.run(5)
    assert sum(waited) / len(waited) <= 25
    assert sum(farm.use.values()) > 0.7 * 2 * (farm.bench.now - 1000)


# --- what is seen of it


def two_owners(farm: Farm) -> Pilot:
    """One core, which ann has; ben waits."""
    farm.submit("ann", 500)
    farm.run(3)
    farm.submit("ben", 500)
    return farm.pilots[0]


def listed(bench: Bench) -> list[tuple[str, str, str]]:
    readers = bench.readers()
    rows = [(row.owner, row.state, row.reason) for row in listing.pilots(readers.connection(), 0, 10)]
    readers.close()
    return rows


def test_a_pilot_gives_way_and_its_successor_serves_the_other_owner(make: Make) -> None:
    farm = make(1, more="quantum = 10")
    bench = farm.bench
    pilot = two_owners(farm)
    # Ann's pilot is at its second turn at most when it is ben's turn: at the first both have equal parts.
    while not pilot.leaving:
        assert bench.pilot_row(pilot.paper.id).leave == ""
        farm.step()
        assert bench.now - pilot.born <= 23
    assert bench.now - pilot.born >= 10
    assert listed(bench) == [("ann", "Done", "share")]
    assert bench.kinds("pilot-gives-way") == [f"pilot {pilot.paper.id}: share"]
    assert bench.kinds("pilot-left")[-1] == "share"
    farm.step()
    [following] = farm.pilots
    assert bench.pilot_row(following.paper.id).only_owner == "ben"
    farm.run(5)
    assert farm.use["ben"] > 0


def test_a_pilot_without_a_job_for_its_owner_leaves_at_once_if_others_wait(make: Make) -> None:
    """The turn would last for ten minutes more, and the pilot would stay idle for five seconds."""
    farm = make(1, more="quantum = 600")
    farm.submit("ann", 2)
    farm.run(3)
    [pilot] = farm.pilots
    farm.submit("ben", 500)
    farm.run(2)
    assert pilot.leaving == "told to leave"
    assert pilot.idle_since > farm.bench.now - 5
    farm.run(4)
    assert farm.use["ann"] == 2
    assert farm.use["ben"] > 0


def test_pilots_of_batch_systems_take_turns_with_demand_matched() -> None:
    """With demand dirac a place in the queue of a batch system is worth more."""
    batch = '[ces.farm]\nsite = "here"\ntype = "slurm"\nowners = "any"\n[ces.own]\nsite = "here"\ntype = "slurm"\n'
    matched = parse(policy(1, more=batch))
    dirac = parse(policy(1, more=f'{batch}[director]\ndemand = "dirac"\n'))
    assert [matched.takes_turns(name) for name in ("local", "farm", "own", "none")] == [
        True,
        True,
        False,
        False,
    ]
    assert [dirac.takes_turns(name) for name in ("local", "farm")] == [True, False]


BATCH = '[ces.{}]\nsite = "here"\ntype = "slurm"\nowners = "any"\nquantum = 20\n'


def given_way(bench: Bench) -> Paper:
    """A pilot of the batch CE `farm` that served ann, and has left since it is ben's turn."""
    bench.submit(500, owner="ann", group="users")
    giver = bench.pilot("farm")
    [first] = giver.take(processors=1, cpu_left=1e6)
    giver.finish(first)
    bench.submit(5, owner="ben", group="users")
    for _ in range(9):
        bench.now += 20
        for offer in giver.take(processors=1, cpu_left=1e6):
            giver.finish(offer)
        if giver.row.leave:
            break
    assert giver.row.leave == "share:ben"
    giver.send(leaving="told to leave")
    return giver


def test_the_first_pilot_of_a_batch_ce_that_asks_has_the_promised_turn(make: Make) -> None:
    """No director starts it: any waiting pilot is bound to ben, though ann has a hundred times as many jobs."""
    bench = make(1, more=BATCH.format("farm") + BATCH.format("other")).bench
    giver = given_way(bench)
    assert list(bench.pool.shares.turns.following) == [giver.id]
    elsewhere = bench.pilot("other")
    assert elsewhere.take(processors=1, cpu_left=1e6)
    assert list(bench.pool.shares.turns.following) == [giver.id], "it is promised at this CE only"
    successor = bench.pilot("farm")
    failed = RuntimeError("the disk is gone")

    def fail(tx: Transaction) -> None:
        turn = promised_turn(bench.pool, successor.row)
        assert turn is not None
        begin_promised_turn(bench.pool.shares, tx, successor.row, turn[0], bench.now)
        raise failed

    with pytest.raises(RuntimeError, match="the disk is gone"):
        bench.do(fail)
    assert list(bench.pool.shares.turns.following) == [giver.id], "a lost transaction has not used it"
    [offer] = successor.take(processors=1, cpu_left=1e6)
    assert offer.payload.owner == "ben"
    assert successor.row.only_owner == "ben"
    assert not bench.pool.shares.turns.following
    turn = bench.pool.shares.turns.running[successor.row.id]
    assert (turn.owner, turn.paid) == ("ben", 20.0)
    assert sum(bench.pool.shares.turns.accounts["farm"].values()) == pytest.approx(0)


def test_a_promised_turn_whose_owner_has_no_job_left_keeps_no_pilot_from_the_others(make: Make) -> None:
    """Another CE has run ben's jobs meanwhile."""
    bench = make(1, more=BATCH.format("farm") + BATCH.format("other")).bench
    given_way(bench)
    other = bench.pilot("other", only_owner="ben")
    while offers := other.take(processors=1, cpu_left=1e6):
        other.finish(offers[0])
    [offer] = bench.pilot("farm").take(processors=1, cpu_left=1e6)
    assert offer.payload.owner == "ann"
    assert sum(bench.pool.shares.turns.accounts["farm"].values()) == pytest.approx(0)


def test_the_job_that_runs_ends_first(make: Make) -> None:
    farm = make(1, more="quantum = 10")
    farm.seconds = {"ann": 1}
    pilot = two_owners(farm)
    while not pilot.leaving:
        farm.step()
        if not pilot.leaving and pilot.held is not None:
            held = pilot.held
    assert farm.bench.state(held.job) == "Done"
    assert "Rescheduled" not in {farm.bench.state(job) for job in range(1, 1001)}


def test_no_lots_are_drawn_before_the_quantum_is_over(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    farm = make(1, more="quantum = 50")
    two_owners(farm)
    drawn = []
    lots = farm.bench.pool.queues.index.count_wins
    monkeypatch.setattr(
        type(farm.bench.pool.queues.index), "count_wins", lambda *words: drawn.append(1) or lots(*words[1:])
    )
    farm.run(45)
    assert drawn == []
    farm.run(5)
    assert drawn == [1]


def test_a_single_owner_keeps_its_pilots(make: Make) -> None:
    farm = make(2, more="quantum = 5")
    farm.submit("ann", 400)
    farm.run(150)
    assert farm.started == 2
    assert not any(farm.bench.pool.shares.turns.accounts["local"].values()), "nobody owes anybody anything"


def test_a_pilot_of_the_home_owner_alone_has_no_turns(make: Make) -> None:
    farm = make(1, more="quantum = 5", owners="home")
    farm.bench.set("server", home_owner="ann")
    farm.submit("ann", 50)
    farm.submit("ben", 50)
    farm.run(30)
    assert (farm.started, dict(farm.use)) == (1, {"ann": 29})
    assert not farm.bench.pool.shares.turns.running


def test_a_transaction_that_fails_leaves_turns_and_accounts_as_they_were(make: Make) -> None:
    farm = make(1, more="quantum = 10")
    pilot = two_owners(farm)
    bench, book = farm.bench, farm.bench.pool.shares.turns
    while bench.now - pilot.born < 10 or pilot.held is None:
        farm.step()
    book.accounts["local"] = {"ann": -5.0, "ben": 5.0}
    before = ({name: dict(held) for name, held in book.accounts.items()}, dict(book.running))
    assert pilot.paper.id in book.running

    def fails(tx: object) -> None:
        raise OSError("the disk is full")

    ask = pilot.paper.asking(pilot.paper.request(take=pilot.paper.asked(1, cpu_left=1e6)))
    for _ in range(2):
        [answer] = bench.together(lambda tx: (ask(tx), fails(tx)))
        assert isinstance(answer, OSError)
        assert (book.accounts, book.running) == before
        assert not book.following
        assert bench.pilot_row(pilot.paper.id).leave == ""
    assert bench.do(ask).leave == "drain"
    assert bench.pilot_row(pilot.paper.id).leave == "share:ben"


def test_the_rest_of_a_turn_is_given_back(make: Make) -> None:
    """A pilot of ann's that ends early costs her only what it used."""
    farm = make(1, more="quantum = 100")
    farm.submit("ann", 500)
    farm.run(10)
    farm.submit("ben", 500)
    while "local" not in farm.bench.pool.shares.turns.accounts or not farm.pilots:
        farm.step()
    farm.run(11)
    [pilot] = farm.pilots
    owner = farm.bench.pilot_row(pilot.paper.id).only_owner
    assert owner is not None
    accounts = farm.bench.pool.shares.turns.accounts["local"]
    before = accounts[owner]
    pilot.paper.send(leaving="signal")
    farm.pilots.clear()
    accounts = farm.bench.pool.shares.turns.accounts["local"]
    # Of the 100 s that were paid some 90 come back, but for the owner's own part of what was dealt.
    assert accounts[owner] - before == pytest.approx(45, abs=20)
    assert sum(accounts.values()) == pytest.approx(0)


def test_after_a_restart_a_bound_pilot_begins_a_turn(make: Make) -> None:
    farm = make(1, more="quantum = 10")
    pilot = two_owners(farm)
    farm.run(5)
    farm.bench.close()
    farm.bench.open()
    while not pilot.leaving:
        farm.step()
    assert farm.bench.now - pilot.born <= 31


def test_an_idle_pilot_of_one_owner_does_not_stand_for_anothers(make: Make) -> None:
    farm = make(2)
    farm.submit("ann", 2)
    farm.run(4)
    assert [pilot.held for pilot in farm.pilots] == [None] * len(farm.pilots)
    idle = len(farm.pilots)
    farm.submit("ben", 1)
    before = farm.started
    farm.step()
    assert farm.started == before + (idle < 2)
    if idle < 2:
        farm.run(2)
        assert farm.use["ben"] == 1


def test_a_private_pilot_of_a_sharing_group_serves_all_its_owners(make: Make) -> None:
    farm = make(1)
    bench = farm.bench
    farm.submit("eve", 3)
    farm.submit("fay", 3)
    farm.submit("ann", 3)
    pilot = bench.pilot(pilot_type="private")
    bench.connection.execute("UPDATE pilots SET owner = 'eve', grp = 'production'")
    bench.do(lambda tx: bench.pool.pilots.rows.clear())
    served: Counter[str] = Counter()
    for _ in range(6):
        offer = pilot.hold(cpu_left=1e6)
        served[offer.payload.owner] += 1
        pilot.finish(offer)
    assert served == {"eve": 3, "fay": 3}
    assert pilot.take(cpu_left=1e6) == []
    assert bench.pilot_row(pilot.id).only_owner is None


def ask_each_turn(bench: Bench, pilots: list[Paper], turns: int) -> list[Paper]:
    """Let each pilot ask for a job after each turn; the pilots that were made to give way."""
    for _ in range(turns):
        bench.now += bench.pool.policy.ces["local"].quantum
        for pilot in pilots:
            for offer in pilot.take(processors=1, cpu_left=1e6):
                pilot.finish(offer)
    return [pilot for pilot in pilots if pilot.row.leave]


def test_a_successor_that_never_comes_is_not_waited_for(make: Make) -> None:
    """The server that runs the director has failed, so it starts nothing in place of the pilot that gave way."""
    bench = make(3, more="quantum = 20").bench
    bench.submit(500, owner="ann", group="users")
    pilots = [bench.pilot(only_owner="ann") for _ in range(3)]
    assert ask_each_turn(bench, pilots, 1) == []
    [waiting] = bench.submit(1, owner="ben", group="users")
    [leaving] = ask_each_turn(bench, pilots, 5)
    assert leaving.row.leave == "share:ben"
    others = [pilot for pilot in pilots if pilot is not leaving]
    assert ask_each_turn(bench, others, 5) == [], "one pilot is enough for one job"
    leaving.send(leaving="told to leave")
    assert ask_each_turn(bench, others, 2) == [], "the director still has time to start the next one"
    [second] = ask_each_turn(bench, others, 5)
    assert second.row.leave == "share:ben"
    assert list(bench.pool.shares.turns.following) == [second.id]
    assert sum(bench.pool.shares.turns.accounts["local"].values()) == pytest.approx(0)
    assert bench.state(waiting) == "Waiting"
