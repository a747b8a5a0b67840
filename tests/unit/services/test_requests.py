"""Requests on a real store: what is accepted, what each verb changes, who may do it, clones and resubmissions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pilotage.core.datasets.facts import ELSEWHERE, FileEntry, Replica
from pilotage.core.errors import Conflict, Forbidden, IllegalMove, InvalidInput, NotFound, Overloaded
from pilotage.core.policy import parse
from pilotage.core.policy.model import JOB_SHARING, NORMAL_USER, PRODUCTION_MANAGEMENT
from pilotage.core.requests.json_format import specification_from_text, specification_to_text, stored_steps
from pilotage.core.requests.parser import parse_mapping
from pilotage.core.requests.specification import UploadedFile
from pilotage.core.requests.states import RequestState
from pilotage.core.requests.step_changes import StepChanges
from pilotage.services.catalogue import removal
from pilotage.services.catalogue.outputs import WrittenFile, register_outputs
from pilotage.services.requests import changes, copies, progress, submission
from pilotage.services.requests.changes import Change, SiteLists
from pilotage.services.requests.rights import Actor, seen_request
from pilotage.services.requests.submission import PreparedRequest
from pilotage.services.workqueue import roll_up
from pilotage.services.workqueue.programs import ProgramCache
from pilotage.store.tables import datasets, elements, request_progress, requests
from pilotage.store.tables.requests import ALL_SITES, RequestRow, StepRow
from pilotage.store.tables.selections import Viewer
from tests.unit.services.workqueue.queue_bench import POLICY, QueueBench

R = RequestState
MANAGER = Actor("alice", "physics", frozenset({NORMAL_USER, PRODUCTION_MANAGEMENT}))
ALICE = Actor("alice", "physics", frozenset({NORMAL_USER}))
BOB = Actor("bob", "physics", frozenset({NORMAL_USER}))
SHARING_BOB = Actor("bob", "physics", frozenset({NORMAL_USER, JOB_SHARING}))

WORK: dict[str, Any] = {
    "name": "work",
    "team": "home",
    "input": "/data",
    "program": {"executable": "run.sh"},
    "splitting": {"algorithm": "FileBased", "files_per_job": 2},
    "output": {"files": ["out"]},
    "merge": True,
}


class Desk:
    """Submits and changes requests as one actor."""

    def __init__(self, queue: QueueBench, actor: Actor = MANAGER) -> None:
        self.queue, self.bench, self.actor = queue, queue.bench, actor

    def prepared(
        self, *, key: str = "", strict: bool = False, confirmed: bool = False, **fields: Any
    ) -> PreparedRequest:
        mapping = {name: value for name, value in {**WORK, **fields}.items() if value is not None}
        request = replace(parse_mapping(mapping), group=self.actor.group)
        return self.bench.do(
            lambda tx: submission.check_data(
                tx.connection,
                PreparedRequest(request, self.actor, key),
                self.bench.pool,
                strict=strict,
                confirmed=confirmed,
            )
        )

    def without_output(self, **fields: Any) -> PreparedRequest:
        """No site of the bench has a storage place."""
        return self.prepared(output=None, merge=None, **fields)

    def submit(self, **fields: Any) -> RequestRow:
        prepared = self.prepared(**fields)
        return self.bench.do(
            lambda tx: submission.submit(self.bench.pool.policy, tx, prepared, self.bench.now)
        )

    def do(self, verb: Any, request: RequestRow | int, *more: Any) -> RequestRow:
        number = request if isinstance(request, int) else request.id
        change = Change(self.actor, self.bench.now, "why")
        row: RequestRow = self.bench.do(lambda tx: verb(tx, number, *more, change))
        return row

    def lists(self, verb: Any, request: RequestRow, lists: SiteLists, *more: Any) -> RequestRow:
        return self.do(verb, request, *more, lists, self.bench.pool.policy)

    def row(self, request: RequestRow) -> RequestRow:
        row = self.bench.do(lambda tx: requests.by_id(tx.connection, request.id))
        assert row is not None
        return row

    def history(self, request: RequestRow) -> list[str]:
        events = self.bench.do(lambda tx: requests.events_of(tx.connection, request.id))
        return [f"{event.kind} {event.new}".strip() for event in events]


@pytest.fixture
def desk(queue: QueueBench) -> Desk:
    dataset = queue.dataset("/data")
    for number in range(3):
        queue.block(dataset, f"b{number}")
    return Desk(queue)


def test_a_request_is_stored_with_its_steps_and_data_sets(desk: Desk) -> None:
    desk.queue.run("UPDATE blocks SET location_set = (SELECT id FROM location_sets WHERE sites = '[\"*\"]')")
    row = desk.submit(open_for=60, sites=["A"], trust_input=True)
    assert desk.row(row) == row
    assert (row.state, row.priority, row.sites, row.trust_input) == (R.ASSIGNED, 8000, ("A",), True)
    assert row.open_until == desk.bench.now + 60
    steps = desk.bench.do(lambda tx: requests.steps_of(tx.connection, row.id))
    names = {id_: dataset.name for id_, dataset in desk.bench.do(lambda tx: datasets.by_ids(
        tx.connection, [id_ for step in steps for id_ in (*step.inputs, step.output_dataset or 0)]
    )).items()}  # fmt: skip
    assert [(step.name, names[step.inputs[0]], names[step.output_dataset or 0]) for step in steps] == [
        ("process", "/data", f"work-{row.id}/process/unmerged"),
        ("process.merge", f"work-{row.id}/process/unmerged", f"work-{row.id}/process"),
    ]
    assert json.loads(steps[0].splitting) == {"algorithm": "FileBased", "parameters": {"files_per_job": 2}}
    assert desk.history(row) == ["submit new", "state assignment-approved", "state assigned"]
    assert desk.prepared().jobs == 6


def test_the_same_key_gives_the_same_request(desk: Desk) -> None:
    first = desk.submit(key="k")
    assert desk.submit(key="k").id == first.id
    assert desk.submit().id != first.id
    with pytest.raises(Conflict, match="another request"):
        desk.submit(key="k", priority=1)


def test_data_and_sites_are_checked(desk: Desk) -> None:
    with pytest.raises(InvalidInput, match="there is no data set /dat ") as refused:
        desk.submit(input="/dat")
    assert refused.value.hint == "did you mean /data?"
    assert desk.without_output(sites=["C"]).warnings == (
        "no site of the request has data of /data, which is at A, B: its work waits",
    )
    with pytest.raises(InvalidInput, match="no address that other sites can read") as useless:
        desk.submit(sites=["C"], trust_input=True)
    assert "dataset replicas" in useless.value.hint
    web = desk.queue.dataset("/web")
    desk.queue.block(web, "w", sites=["A", ELSEWHERE])
    assert desk.without_output(input="/web", sites=["C"], trust_input=True, strict=True).warnings == ()
    with pytest.raises(InvalidInput, match="no site of the request has data"):
        desk.submit(sites=["C"], strict=True)
    with pytest.raises(InvalidInput, match="Z is not in the policy"):
        submission.check_sites(parse_mapping({**WORK, "sites": ["Z"]}), desk.bench.pool.policy)
    unknown = desk.queue.dataset("/unknown")
    desk.queue.block(unknown, "x", sites=None)
    assert desk.without_output(input="/unknown", sites=["C"], strict=True).warnings == (), (
        "unknown is not empty"
    )
    assert "has no team" in desk.without_output(team=None).warnings[0]


def test_a_team_without_agents_is_told_at_once(desk: Desk, queue: QueueBench) -> None:
    assert desk.without_output().warnings == (), "the server starts an agent for it"
    assert desk.without_output(team="hmoe").warnings == (
        "no agent of team hmoe has joined: did you mean home?; start one with `pilotage agent --team hmoe`",
    )
    queue.agent(team="hmoe")
    assert desk.without_output(team="hmoe").warnings == ()


def test_a_request_in_the_queue_changes_its_team(desk: Desk, queue: QueueBench) -> None:
    """Another team takes the elements that nobody has. Elements of an agent stay with it."""
    old, new = queue.agent("old", team="hmoe"), queue.agent("new")
    row = desk.submit(team="hmoe")
    queue.intake(row.id)
    [element] = old.sync(want=1).elements
    assert new.sync().elements == []
    assigned = desk.lists(changes.assign, row, SiteLists(), "home")
    assert (assigned.team, assigned.state) == ("home", queue.request_row(row.id).state)
    assert assigned.state is R.ACQUIRED
    assert desk.history(row)[-1] == "assign"
    assert old.sync().elements == []
    taken = new.sync().elements
    assert len(taken) == len(queue.elements_of(row.id)) - 1
    old.split(element.id)
    new.split(*(element.id for element in taken))
    queue.check_every_event_once(row.id)
    narrowed = desk.lists(changes.assign, row, SiteLists(sites=("B",)), "")
    assert narrowed.propagating, "its jobs move too"
    desk.do(changes.abort, row)
    with pytest.raises(Conflict, match="team of a request in state aborted"):
        desk.lists(changes.assign, row, SiteLists(), "home")


def test_splitting_and_resources_change_at_assignment(desk: Desk, queue: QueueBench) -> None:
    row = desk.submit(team=None)
    new = StepChanges("", {"processors": 4, "memory": "2000 MB", "wall_time": "90 min"}, {"files_per_job": 1})

    def assign(row: RequestRow, steps: StepChanges, team: str = "home") -> RequestRow:
        change = Change(MANAGER, desk.bench.now, "larger")
        policy = desk.bench.pool.policy
        return desk.bench.do(lambda tx: changes.assign(tx, row.id, team, SiteLists(), policy, change, steps))

    for steps, mistake in (
        (StepChanges("merge"), "no step merge"),
        (StepChanges("", {"executable": "rm"}), "executable of a request cannot change"),
        (StepChanges("", {"memory": -1}), "memory"),
        (StepChanges("", {}, {"files_per_job": 0}), "files_per_job"),
        (StepChanges("", {}, {"events_per_job": 5}), "events_per_job"),
    ):
        with pytest.raises(InvalidInput, match=mistake):
            assign(row, replace(steps, resources={"memory": 5}) if steps.is_empty else steps)
    assert desk.row(row).state is R.ASSIGNMENT_APPROVED, "a refusal changes nothing"
    assigned = assign(row, new)
    assert desk.row(row) == assigned
    [event] = [
        event
        for event in desk.bench.do(lambda tx: requests.events_of(tx.connection, row.id))
        if event.kind == "assign"
    ]
    assert (
        "files_per_job=2, processors=1 → process: FileBased files_per_job=1, processors=4 memory=2000 wall_time=5400"
        in event.detail
    )
    queue.intake(row.id)
    elements_made = queue.elements_of(row.id)
    assert {element.jobs for element in elements_made} == {4}, "one job for each file"
    agent = queue.agent()
    [offered, *_] = agent.sync().elements
    assert offered.splitting.parameters == {"files_per_job": 1}
    program = desk.bench.do(lambda tx: ProgramCache().get(tx.connection, row.id, 0))
    assert program is not None
    assert (program.description.processors, program.description.memory) == (4, 2000)
    with pytest.raises(Conflict, match="splitting and resources of a request in state acquired"):
        assign(row, new)


def test_a_failed_request_is_tried_again_only_with_the_files_of_its_programs(desk: Desk) -> None:
    row, digest = desk.submit(), "a" * 64
    known = specification_from_text(row.specification)
    file = UploadedFile("f", digest, 1, executable=False)
    steps = tuple(replace(step, program=replace(step.program, inputs=(file,))) for step in known.steps)
    text = specification_to_text(replace(known, steps=steps))

    def execute(sql: str, *values: object) -> Any:
        return desk.bench.do(lambda tx: tx.connection.execute(sql, values))

    execute("UPDATE requests SET state = 'failed', specification = ?", text)
    with pytest.raises(InvalidInput, match="too old"):
        desk.lists(changes.assign, row, SiteLists(), "home")
    execute("INSERT INTO uploads (owner, digest, size, uploaded) VALUES ('alice', ?, 1, 0)", digest)
    assert desk.lists(changes.assign, row, SiteLists(), "home").state is R.ASSIGNED
    assert execute("SELECT uploaded FROM uploads").fetchall() == [(desk.bench.now,)], "retention keeps it"


def test_a_paused_request_gives_no_element(desk: Desk, queue: QueueBench) -> None:
    """Elements that an agent has stay with it. An end by force ends the pause, so that outputs are merged."""
    agent, row = queue.agent(), desk.submit()
    queue.intake(row.id)
    [element] = agent.sync(want=1).elements
    paused = desk.do(changes.pause, row)
    assert (paused.paused, paused.state, desk.row(row)) == (True, R.ACQUIRED, paused)
    assert desk.do(changes.pause, row) == paused, "a second time changes nothing"
    assert agent.sync().elements == []
    assert not desk.bench.do(lambda tx: elements.any_available(tx.connection, "home"))
    agent.split(element.id)
    assert queue.element(element.id).state == "Running"
    resumed = desk.do(changes.resume, row)
    assert not resumed.paused
    assert desk.history(row)[-1] == "resume"
    assert len(agent.sync().elements) == len(queue.elements_of(row.id)) - 1
    desk.do(changes.pause, row)
    with pytest.raises(NotFound):
        Desk(queue, BOB).do(changes.resume, row)
    assert not desk.do(changes.abort, row).paused
    with pytest.raises(Conflict, match="pause of a request in state aborted"):
        desk.do(changes.pause, row)


def test_a_very_large_request_needs_a_confirmation(desk: Desk) -> None:
    large = {"input": None, "events": 10**9, "splitting": {"algorithm": "EventBased", "events_per_job": 10}}
    with pytest.raises(Conflict, match="about 100,000,000 jobs"):
        desk.submit(**large)
    assert desk.submit(**large, confirmed=True).state is R.ASSIGNED


def test_time_and_output_are_estimated_by_what_the_request_gives(desk: Desk) -> None:
    def effort(**parameters: float | str) -> tuple[float | None, int | None]:
        splitting = {"algorithm": "EventBased", "events_per_job": 10, **parameters}
        return desk.prepared(input=None, events=1000, splitting=splitting).effort

    assert effort() == (None, None)
    assert effort(time_per_event=3) == (3000, None)
    assert effort(time_per_event=3, size_per_event=0.5) == (3000, 500_000)
    assert effort(size_per_event="2 MB") == (None, 2 * 10**9)


def test_nothing_is_stored_of_a_request_whose_output_exists(desk: Desk) -> None:
    output = {"files": ["out"], "dataset": "/taken"}
    desk.submit(output=output)
    with pytest.raises(InvalidInput, match="/taken/unmerged exists already"):
        desk.submit(output=output)
    assert desk.bench.do(lambda tx: requests.count_unfinished(tx.connection, "alice", RequestState)) == 1


def test_an_owner_has_a_quota(queue: QueueBench) -> None:
    policy = parse(POLICY.replace("[requests]\n", "[requests]\nmax_requests_per_owner = 1\n"))
    queue.bench.do(lambda tx: setattr(queue.bench.pool, "policy", policy))
    queue.dataset("/data")
    desk = Desk(queue)
    first = desk.submit()
    with pytest.raises(Overloaded, match="1 unfinished requests"):
        desk.submit()
    desk.do(changes.abort, first)
    with pytest.raises(Overloaded):
        desk.submit()
    Desk(queue, replace(BOB, properties=MANAGER.properties)).submit()


def test_approval_and_assignment_are_rights(desk: Desk, queue: QueueBench) -> None:
    alice = Desk(queue, ALICE)
    row = alice.submit(team=None)
    assert row.state is R.NEW
    for verb in (changes.approve, changes.reject):
        with pytest.raises(Forbidden, match="may not"):
            alice.do(verb, row)
    assert desk.do(changes.approve, row).state is R.ASSIGNMENT_APPROVED
    with pytest.raises(InvalidInput, match="no team"):
        desk.lists(changes.assign, row, SiteLists(), "")
    assigned = desk.lists(changes.assign, row, SiteLists(sites=("B",)), "far")
    assert (assigned.state, assigned.team, assigned.sites) == (R.ASSIGNED, "far", ("B",))
    assert desk.lists(changes.assign, assigned, SiteLists(), "near").team == "near"
    new = alice.submit()
    assert desk.lists(changes.assign, new, SiteLists(), "").state is R.ASSIGNED, "approved on the way"
    assert desk.do(changes.reject, alice.submit()).state is R.REJECTED
    with pytest.raises(IllegalMove):
        desk.do(changes.reject, assigned)


def test_rights_decide_who_sees_and_changes_a_request(desk: Desk, queue: QueueBench) -> None:
    row = Desk(queue, ALICE).submit()
    bob, sharing = Desk(queue, BOB), Desk(queue, SHARING_BOB)
    for verb in (changes.abort, changes.force_complete):
        with pytest.raises(NotFound):
            bob.do(verb, row)
    with pytest.raises(NotFound):
        seen_request(queue.bench.connection, BOB, row.id)
    assert seen_request(queue.bench.connection, SHARING_BOB, row.id) == row
    assert sharing.do(changes.set_priority, row, 7).priority == 7
    with pytest.raises(NotFound):
        desk.do(changes.abort, 12345)


def test_priority_and_lists_change_one_row_and_its_history(desk: Desk) -> None:
    row = desk.submit()
    changed = desk.do(changes.set_priority, row, 9000)
    assert (changed.priority, changed.propagating, changed.version) == (9000, True, row.version + 1)
    assert desk.do(changes.set_priority, row, 9000).version == changed.version, "nothing to change"
    lists = desk.lists(changes.set_sites, row, SiteLists(("A", "B"), ("B",), trust_input=True))
    assert (lists.sites, lists.banned_sites, lists.trust_input) == (("A", "B"), ("B",), True)
    assert desk.lists(changes.set_sites, row, SiteLists(sites=())).sites == ALL_SITES
    with pytest.raises(InvalidInput, match="no site would be left"):
        desk.lists(changes.set_sites, row, SiteLists(sites=("B",)))
    with pytest.raises(InvalidInput, match="priority must be"):
        desk.do(changes.set_priority, row, 10**6)
    events = desk.bench.do(lambda tx: requests.events_of(tx.connection, row.id))
    assert [event.detail for event in events if event.kind in ("priority", "sites")] == [
        "priority 8000 → 9000: why",
        "sites * → A B, banned sites none → B, trust input false → true: why",
        "sites A B → *: why",
    ]


EVERY = [R.ASSIGNED, R.STAGING, R.STAGED, R.ACQUIRED, R.RUNNING_OPEN, R.RUNNING_CLOSED]


@pytest.mark.parametrize("state", list(RequestState))
def test_a_request_is_aborted_and_force_completed_in_the_states_of_the_table(
    queue: QueueBench, state: R
) -> None:
    desk = Desk(queue)
    row = desk.queue.request_row(queue.request(state=state))
    if state in (R.NEW, R.ASSIGNMENT_APPROVED):
        assert desk.do(changes.abort, row).state is R.REJECTED
        return
    if state is R.ABORTED:
        assert desk.do(changes.abort, row) == row, "a second abort changes nothing"
        return
    if state not in EVERY:
        with pytest.raises(IllegalMove):
            desk.do(changes.abort, row)
    else:
        aborted = desk.do(changes.abort, row)
        assert (aborted.state, aborted.propagating) == (R.ABORTED, True)
        assert desk.row(row).propagating
    row = desk.queue.request_row(queue.request(state=state))
    if state in (R.RUNNING_OPEN, R.RUNNING_CLOSED):
        assert desk.do(changes.force_complete, row).state is R.FORCE_COMPLETE
        assert desk.row(row).propagating
    elif state is not R.FORCE_COMPLETE:
        with pytest.raises(IllegalMove):
            desk.do(changes.force_complete, row)


def test_an_ended_request_is_archived_through_all_states(queue: QueueBench) -> None:
    desk = Desk(queue)
    row = queue.request_row(queue.request(state=R.COMPLETED))
    assert desk.do(changes.archive, row).state is R.NORMAL_ARCHIVED
    assert desk.history(row)[1:] == ["state closed-out", "state announced", "state normal-archived"]
    assert desk.do(changes.archive, row).state is R.NORMAL_ARCHIVED
    running = queue.request_row(queue.request(state=R.ACQUIRED))
    with pytest.raises(Conflict, match="has not ended"):
        desk.do(changes.archive, running)


def test_a_clone_is_a_new_request_with_its_present_facts(desk: Desk, queue: QueueBench) -> None:
    row = desk.submit(output={"files": ["out"], "dataset": "/explicit"})
    desk.do(changes.set_priority, row, 77)
    desk.lists(changes.set_sites, row, SiteLists(sites=("A",)))
    pool = queue.bench.pool

    def clone(key: str = "", actor: Actor = MANAGER, **given: Any) -> RequestRow:
        return queue.bench.do(
            lambda tx: copies.clone(pool.policy, tx, row.id, actor, changes=given, key=key, now=queue.now)
        )

    copy = clone(key="c", name="again", team="other")
    assert (copy.origin, copy.name, copy.team, copy.priority, copy.sites) == (
        row.id,
        "again",
        "other",
        77,
        ("A",),
    )
    assert clone(key="c", name="again", team="other").id == copy.id
    assert [step.output.dataset for step in stored_steps(copy.specification, copy.id)] == [
        f"again-{copy.id}/process/unmerged",
        f"again-{copy.id}/process",
    ]
    with pytest.raises(InvalidInput, match="cannot be a name"):
        clone(name="two words")
    with pytest.raises(Forbidden, match="who alone may run"):
        clone(actor=replace(BOB, properties=MANAGER.properties))


def test_results_are_accepted_and_announced_one_after_the_other(desk: Desk, queue: QueueBench) -> None:
    row = desk.submit()
    with pytest.raises(IllegalMove):
        desk.do(changes.close_out, row)
    queue.run("UPDATE requests SET state = 'completed' WHERE id = ?", row.id)
    with pytest.raises(IllegalMove):
        desk.do(changes.announce, row)
    with pytest.raises(Forbidden, match="may not close out requests"):
        Desk(queue, BOB).do(changes.close_out, row)
    for verb, state in ((changes.close_out, R.CLOSED_OUT), (changes.announce, R.ANNOUNCED)):
        assert desk.do(verb, row).state is state
        assert desk.do(verb, row).state is state


def test_a_resubmission_takes_exactly_the_failed_jobs(desk: Desk, queue: QueueBench) -> None:
    row = desk.submit()
    queue.intake(row.id)
    agent = queue.agent()
    agent.sync()
    agent.split()
    [(failed, mask)] = queue.sql(
        "SELECT id, mask FROM element_jobs WHERE request_id = ? ORDER BY id LIMIT 1", row.id
    )
    pool = queue.bench.pool

    def resubmit(number: int, key: str = "") -> RequestRow:
        return queue.bench.do(
            lambda tx: copies.resubmit(pool.policy, tx, number, MANAGER, key=key, now=queue.now)
        ).row

    with pytest.raises(Conflict, match="may still be tried again"):
        resubmit(row.id)
    queue.run("UPDATE requests SET state = 'completed' WHERE id = ?", row.id)
    with pytest.raises(Conflict, match="no job of request"):
        resubmit(row.id)
    queue.run("UPDATE element_jobs SET state = 'exhausted' WHERE id = ?", failed)
    again = resubmit(row.id, key="r")
    assert resubmit(row.id, key="r").id == again.id
    steps = queue.bench.do(lambda tx: requests.steps_of(tx.connection, again.id))
    assert [(step.name, step.start_policy, step.after) for step in steps] == [
        ("process", "Resubmit", None),
        ("process.merge", "Resubmit", None),
        ("process.merge.rest", "Block", 0),
    ]
    assert steps[0].output_dataset == steps[2].input_dataset
    assert steps[1].output_dataset == steps[2].output_dataset
    assert steps[0].output_dataset is not None
    queue.intake(again.id)
    assert queue.request_row(again.id).state is R.ACQUIRED
    assert [element.jobs for element in queue.elements_of(again.id)] == [1]
    agent.sync()
    agent.split()
    masks = queue.sql("SELECT mask FROM element_jobs WHERE request_id = ?", again.id)
    assert masks == [(mask,)], "the piece of the failed job, and nothing else"
    queue.run("UPDATE element_jobs SET state = 'exhausted' WHERE request_id = ?", again.id)
    queue.run("UPDATE requests SET state = 'completed' WHERE id = ?", again.id)
    third = resubmit(again.id)
    names = [step.name for step in queue.bench.do(lambda tx: requests.steps_of(tx.connection, third.id))]
    assert names == ["process", "process.merge", "process.merge.rest", "process.merge.rest2"]


def test_elements_are_listed_by_state_step_and_age(desk: Desk, queue: QueueBench) -> None:
    row = desk.submit()
    queue.intake(row.id)
    agent = queue.agent()
    agent.sync()
    [kept, *others] = sorted(element.id for element in agent.held.values())
    agent.sync(0)
    agent.split(*others)
    row = queue.request_row(row.id)
    begun = queue.now

    def listed(**conditions: Any) -> list[tuple[int, str]]:
        given: dict[str, Any] = {
            "states": (),
            "step": "",
            "unchanged_since": queue.now,
            "after": 0,
            "most": 100,
        }
        rows = queue.bench.do(lambda tx: progress.elements(tx.connection, row, **{**given, **conditions}))
        return [(element.id, element.state) for element in rows]

    assert listed() == sorted([(kept, "Acquired"), *((id_, "Running") for id_ in others)])
    assert listed(most=1) == listed()[:1]
    assert listed(after=listed()[0][0]) == listed()[1:]
    assert listed(states=["Acquired"], step="process") == [(kept, "Acquired")]
    assert listed(step="process.merge") == []
    assert listed(unchanged_since=begun - 1000) == []
    with pytest.raises(NotFound, match="has no step proces"):
        listed(step="proces")
    with pytest.raises(InvalidInput, match="'acquired' is no state of elements"):
        listed(states=["acquired"])


@pytest.mark.parametrize("generates", [False, True])
@pytest.mark.parametrize("made", [0, 1])
def test_a_resubmission_takes_the_rest_of_elements_that_could_not_be_split(
    desk: Desk, queue: QueueBench, generates: bool, made: int
) -> None:
    """Jobs that were made before go on; each of the other parts is in exactly one mask of the new request."""
    work = {"merge": None, "output": None}
    if generates:
        row = desk.submit(
            **work, input=None, events=30, splitting={"algorithm": "EventBased", "events_per_job": 10}
        )
    else:
        row = desk.submit(**work)
    queue.intake(row.id)
    agent = queue.agent()
    agent.sync()
    number, element = sorted(agent.held.items())[0]
    all_masks = agent.masks_of(element)
    agent.post(element, all_masks[:made])
    agent.held.pop(number)
    assert not agent.post(element, [], last=True, failure="no lumis in file 3").superseded
    agent.split()
    queue.run("UPDATE element_jobs SET state = 'done'")
    while queue.bench.do(lambda tx: roll_up.advance(tx, row.id, queue.now)):
        pass
    queue.run("UPDATE elements SET state = 'Done' WHERE state = 'Running'")
    for _ in range(3):
        queue.bench.do(lambda tx: roll_up.advance(tx, row.id, queue.now))
    alone = generates and not made
    assert queue.request_row(row.id).state is (R.FAILED if alone else R.COMPLETED)
    ended = queue.request_row(row.id)
    [summary] = queue.bench.do(lambda tx: progress.summaries(tx.connection, [ended]))
    assert (summary.failed_jobs, summary.failed_elements) == (0, 1)
    shown = queue.bench.do(lambda tx: progress.detail(tx.connection, ended, queue.now))
    assert [(error.failure, error.count, error.element, error.message) for error in shown.errors] == [
        ("not split", 1, element.id, "no lumis in file 3")
    ]
    pool = queue.bench.pool
    again = queue.bench.do(
        lambda tx: copies.resubmit(pool.policy, tx, row.id, MANAGER, key="", now=queue.now)
    ).row
    queue.intake(again.id)
    agent.sync()
    agent.split()
    assert sorted(mask.text for mask in queue.masks(again.id)) == sorted(
        mask.text for mask in all_masks[made:]
    )
    if not made:
        queue.check_every_event_once(again.id)


def store_log(queue: QueueBench, dataset: int, number: int) -> None:
    """Register a log file at site A."""
    file = FileEntry(f"{number}/{number}-1/logs.tar.gz", 1000)
    output = WrittenFile(dataset, file, Replica("A", "/pool/logs"))
    queue.bench.do(lambda tx: register_outputs(tx, number, [output], queue.now))


def steps_of(queue: QueueBench, request: RequestRow) -> list[StepRow]:
    return queue.bench.do(lambda tx: requests.steps_of(tx.connection, request.id))


def is_open(queue: QueueBench, dataset: int) -> bool:
    return bool(queue.sql("SELECT open FROM datasets WHERE id = ?", dataset)[0][0])


def end_work(queue: QueueBench, request: RequestRow) -> None:
    """End all elements and jobs of a request well, and advance it."""
    queue.run("UPDATE element_jobs SET state = 'done' WHERE request_id = ?", request.id)
    queue.run("UPDATE elements SET state = 'Done' WHERE request_id = ?", request.id)
    while queue.bench.do(lambda tx: roll_up.advance(tx, request.id, queue.now)):
        pass


@pytest.mark.parametrize("forced", [False, True])
def test_logs_are_archived_when_the_last_step_that_writes_them_has_ended(
    desk: Desk, queue: QueueBench, forced: bool
) -> None:
    row = desk.submit(log_collect=True)
    process, merge, collect = steps_of(queue, row)
    assert process.log_dataset == merge.log_dataset == collect.input_dataset
    assert (collect.log_dataset, collect.type) == (None, "LogCollect")
    assert process.log_dataset is not None
    with pytest.raises(Conflict, match=f"request {row.id}"):
        remove_logs(queue, row)
    queue.intake(row.id)
    store_log(queue, process.log_dataset, 1)
    if forced:
        queue.run("UPDATE requests SET state = 'running-open' WHERE id = ?", row.id)
        desk.do(changes.force_complete, row)
    end_work(queue, row)
    assert [step.ended for step in steps_of(queue, row)] == [True, False, False]
    assert is_open(queue, process.log_dataset), "the merge may still write logs"
    queue.intake(row.id)
    end_work(queue, row)
    assert [step.ended for step in steps_of(queue, row)] == [True, True, False]
    assert not is_open(queue, process.log_dataset)
    queue.intake(row.id)
    *_, archive = queue.elements_of(row.id)
    assert (archive.step, archive.state, archive.files) == (2, "Available", 1)
    agent = queue.agent()
    [offer] = agent.sync().elements
    assert (offer.step, offer.type) == ("logs.collect", "LogCollect")
    agent.split()
    end_work(queue, row)
    assert queue.request_row(row.id).state is R.COMPLETED


def test_sites_that_cannot_store_files_are_told(desk: Desk) -> None:
    [warning] = desk.without_output(log_collect=True, sites=["A", "B"]).warnings
    assert warning.startswith("logs of jobs at A, B are not stored: there is no sites.NAME.storage")
    assert desk.without_output(sites=["A", "B"]).warnings == ()
    text = POLICY.replace("[sites.A]", '[sites.A]\nstorage = ["/pool", "/fast"]')
    desk.bench.set(policy=parse(text))
    assert desk.prepared(sites=["A"], log_collect=True).warnings == ()
    assert desk.prepared(sites=["A"], output={"files": ["out"], "places": ["/lost", "/fast"]}).warnings == ()
    output = {"files": ["out"], "places": ["/lost"]}
    [warning] = desk.prepared(sites=["A", "B"], output=output).warnings
    assert warning == (
        "outputs of step process at A, B are not stored: none of its places is in sites.NAME.storage of the policy:"
        " /lost"
    )
    [warning] = desk.without_output(sites=["A"], log_collect={"places": ["/pool/", "/lost"]}).warnings
    assert warning.endswith("none of its places is in sites.NAME.storage of the policy: /pool/, /lost")
    sites = "".join(f"[sites.s{number}]\n" for number in range(9))
    desk.bench.set(policy=parse(POLICY + sites))
    [warning] = desk.prepared().warnings
    assert "at A, B, C, s0, s1 and 7 more sites are not stored" in warning


def remove_logs(queue: QueueBench, row: RequestRow) -> None:
    name = f"work-{row.id}/logs/unmerged"
    queue.bench.do(lambda tx: removal.remove(tx, name, changer=Viewer("alice"), now=queue.now))


def test_an_abort_leaves_the_logs_as_they_are(desk: Desk, queue: QueueBench) -> None:
    row = desk.submit(log_collect=True)
    queue.intake(row.id)
    logs = steps_of(queue, row)[0].log_dataset
    assert logs is not None
    store_log(queue, logs, 1)
    desk.do(changes.abort, row)
    queue.run("UPDATE elements SET state = 'Canceled'")
    while queue.bench.do(lambda tx: roll_up.advance(tx, row.id, queue.now)):
        pass
    assert queue.request_row(row.id).state is R.ABORTED_COMPLETED
    assert not is_open(queue, logs)
    queue.intake(row.id)
    assert {element.step for element in queue.elements_of(row.id)} == {0}
    assert queue.sql("SELECT count(*) FROM files WHERE dataset_id = ?", logs) == [(1,)]


def test_the_funnel_counts_elements_jobs_events_sites_and_errors(desk: Desk, queue: QueueBench) -> None:
    row = desk.submit()
    queue.intake(row.id)
    agent = queue.agent()
    agent.sync()
    agent.split()
    ids = [
        id_ for (id_,) in queue.sql("SELECT id FROM element_jobs WHERE request_id = ? ORDER BY id", row.id)
    ]
    queue.run(
        "UPDATE element_jobs SET site = 'A', state = 'done', ended = ? WHERE id <= ?", queue.now, ids[2]
    )
    queue.run(
        "UPDATE element_jobs SET site = 'B', state = 'exhausted', exit_code = 3, failure = 'payload',"
        " message = 'no such file' WHERE id = ?",
        ids[3],
    )
    first, second, _ = (element.id for element in queue.elements_of(row.id))
    queue.run("UPDATE elements SET jobs_done = 2, state = 'Done' WHERE id = ?", first)
    queue.run("UPDATE elements SET jobs_done = 1, jobs_failed = 1, state = 'Failed' WHERE id = ?", second)
    detail = queue.bench.do(lambda tx: progress.detail(tx.connection, row, queue.now + 60))
    assert (detail.steps[0].complete, detail.steps[0].success) == (66, 50), "the truncated means"
    assert (detail.request.elements, detail.request.jobs, detail.request.done_jobs) == (3, 6, 3)
    assert detail.request.failed_jobs == 1
    step = detail.steps[0]
    assert sum(step.elements.values()) == 3
    assert step.jobs == {"done": 3, "exhausted": 1, "made": 2}
    assert (step.events, step.done_events, step.done_files) == (1200, 600, 6)
    places = {place.site: (place.done, place.failed) for place in detail.places}
    assert (places["A"], places["B"]) == ((3, 0), (0, 1))
    [error] = detail.errors
    assert (error.exit_code, error.count, error.exhausted, error.message) == (3, 1, 1, "no such file")
    assert detail.estimated_end is not None
    assert queue.now < detail.estimated_end < queue.now + 7200
    queue.run(
        "UPDATE element_jobs SET state = 'cooloff', not_before = ? WHERE id = ?", queue.now + 7200, ids[3]
    )
    paused = queue.bench.do(lambda tx: progress.detail(tx.connection, row, queue.now + 60))
    assert paused.estimated_end == queue.now + 7200, "its job pauses until then"
    queue.run("UPDATE element_jobs SET state = 'exhausted' WHERE id = ?", ids[3])
    [summary] = queue.bench.do(lambda tx: progress.summaries(tx.connection, [row]))
    assert summary == detail.request
    assert queue.bench.do(lambda tx: progress.summaries(tx.connection, [])) == []


class Recorder:
    """A connection that remembers its statements."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.statements: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, values: Any = ()) -> Any:
        self.statements.append((sql, values))
        return self._connection.execute(sql, values)


def test_the_counts_of_a_funnel_read_no_rows_of_jobs(desk: Desk, queue: QueueBench) -> None:
    """A request may have a million jobs: ended ones are counted in an index that has all columns."""
    if queue.bench.connection.dialect != "sqlite":
        pytest.skip("the planner of PostgreSQL reads a small table as a whole")
    row = desk.submit()
    recorder = Recorder(queue.bench.connection)
    for count in (
        lambda: request_progress.jobs_of(recorder, row.id),
        lambda: request_progress.jobs_by_request(recorder, [row.id]),
        lambda: request_progress.done_since(recorder, row.id, 1.0),
        lambda: request_progress.errors_of(recorder, row.id, 5),
    ):
        count()
    plans = [
        " ".join(step[3] for step in queue.sql(f"EXPLAIN QUERY PLAN {sql}", *values))
        for sql, values in recorder.statements
    ]
    assert len(plans) == 4
    assert all("USING COVERING INDEX ix_element_jobs_request" in plan for plan in plans[:3]), plans
    assert "USING COVERING INDEX ix_element_jobs_failed" in plans[3]
    assert "TEMP B-TREE FOR GROUP BY" not in plans[0]
