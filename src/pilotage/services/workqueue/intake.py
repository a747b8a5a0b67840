"""Intake: requests become elements, in slices; the steps of a request go on to take blocks as they are closed.

A slice stores its elements and how far the step has come in one transaction. Elements have an identity, so a slice
that is repeated stores nothing twice. Nobody pulls elements of a request before all of its first slices are stored:
until then the request is `assigned`, and its row is the element that WMCore calls Negotiating.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from pilotage.core.errors import InvalidInput, TooLarge
from pilotage.core.plurals import plural
from pilotage.core.requests.json_format import stored_steps
from pilotage.core.requests.plan import PlannedStep, rows_of_step
from pilotage.core.requests.specification import CLEANUP
from pilotage.core.requests.start_policies import START_POLICIES
from pilotage.core.requests.start_policy import (
    Generator,
    InputBlock,
    Reads,
    StartPlan,
    StepInput,
)
from pilotage.core.requests.states import RequestState
from pilotage.core.workqueue.roll_up import WORKING, is_working
from pilotage.services.catalogue.locations import hold_locations
from pilotage.services.workqueue.cleanup import Cleanup, cleanup_of
from pilotage.services.workqueue.planned_elements import algorithm_of, job_count_of, new_element
from pilotage.services.workqueue.state import WorkQueue
from pilotage.services.workqueue.totals import limit_to_total
from pilotage.store.tables import (
    dataset_blocks,
    datasets,
    elements,
    followed_datasets,
    queued_requests,
    requests,
)
from pilotage.store.tables.dataset_blocks import InputDataset
from pilotage.store.tables.datasets import BlockRow
from pilotage.store.tables.elements import NewElement
from pilotage.store.tables.requests import RequestRow, StepRow
from pilotage.store.writer.transaction import Transaction

ACTOR = "intake"
BEFORE = (RequestState.ASSIGNED, RequestState.STAGED)
"""The states of a request whose elements are not made."""
GROWING = tuple(sorted(WORKING))
MOST_NAMED = 3
"""Blocks that a reason names."""


def take_slice(work_queue: WorkQueue, tx: Transaction, request_id: int, now: float, limit: int) -> bool:
    """Make the next elements of a request, at most `limit`. Returns whether there are more to make at once."""
    request = requests.for_change(tx.connection, request_id)
    if request is None or not request.team or request.state not in (*BEFORE, *GROWING):
        return False
    tx.on_rollback(work_queue.forget_location_sets)
    intake = _Intake(work_queue, tx, request, now, limit)
    if request.state in GROWING:
        try:
            return intake.run()
        except TooLarge as error:
            # A policy that allows more lets it grow again.
            queued_requests.set_reason(tx.connection, request.id, str(error), now)
            return False
    try:
        if intake.run():
            return True
    except InvalidInput as error:
        requests.move(tx.connection, request, RequestState.FAILED, actor=ACTOR, now=now, reason=str(error))
        return False
    intake.conclude()
    return False


@dataclass(slots=True)
class _Slice:
    """The elements of one slice of a step, and how far it comes."""

    plan: StartPlan
    taken: int
    closed: bool
    """No more elements will come."""
    is_full: bool = False
    """More input is there at once."""


@dataclass(slots=True)
class _Intake:
    """One slice of the intake of a request."""

    work_queue: WorkQueue
    tx: Transaction
    request: RequestRow
    now: float
    room: int
    """Elements that this slice may still store."""
    waits_for: list[str] = field(default_factory=list)
    """Data sets that may get more blocks although no step of the request has work yet."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Blocks without an element, with the reason."""

    def run(self) -> bool:
        """Store the slice; returns whether there are more elements to store at once."""
        planned = stored_steps(self.request.specification, self.request.id)
        steps = requests.steps_of(self.tx.connection, self.request.id)
        for step in steps:
            if step.closed or not (self.request.state in BEFORE or is_working(self.request.state, step.type)):
                continue
            if step.type == CLEANUP and not self._may_clean(steps, step):
                continue
            if self.room <= 0:
                return True
            if self._take(step, planned[step.position]):
                return True
        return False

    def _may_clean(self, steps: Sequence[StepRow], step: StepRow) -> bool:
        """Whether a cleanup step takes its input now. One that must never begin is closed."""
        cleanup = cleanup_of(self.tx.connection, self.request, steps, step)
        if cleanup is Cleanup.NEVER:
            queued_requests.save_progress(
                self.tx.connection, step.request, step.position, step.taken, closed=True
            )
        return cleanup is Cleanup.BEGINS

    def conclude(self) -> None:
        """All elements that can be made are stored: the queue takes the request over, or it fails without work."""
        connection = self.tx.connection
        if elements.count_of_request(connection, self.request.id):
            # A resubmission may write data sets that earlier requests closed.
            datasets.reopen_outputs(connection, self.request.id)
            requests.move(connection, self.request, RequestState.ACQUIRED, actor=ACTOR, now=self.now)
        elif self.waits_for:
            reason = f"waits for blocks of {', '.join(self.waits_for)}"
            queued_requests.set_reason(connection, self.request.id, reason, self.now)
        else:
            requests.move(
                connection,
                self.request,
                RequestState.FAILED,
                actor=ACTOR,
                now=self.now,
                reason=self._no_work(),
            )

    def _no_work(self) -> str:
        named = [f"{name}: {reason}" for name, reason in list(self.left_out.items())[:MOST_NAMED]]
        more = len(self.left_out) - len(named)
        if more > 0:
            named.append(plural(more, "more block"))
        if named:
            return f"there is no work ({'; '.join(named)})"
        steps = requests.steps_of(self.tx.connection, self.request.id)
        inputs = [step.input_dataset for step in steps if step.input_dataset is not None]
        if any(datasets.closed_blocks(self.tx.connection, dataset, 0, 1) for dataset in inputs):
            return "there is no work: each block of its input is empty, or its lists of blocks and runs exclude it"
        followed = (followed_datasets.of_dataset(self.tx.connection, dataset) for dataset in inputs)
        notes = "; ".join(row.note for row in followed if row is not None and row.note)
        empty = ": its input has no closed block" + (f" ({notes})" if notes else "")
        return "there is no work" + (empty if inputs else "")

    def _take(self, step: StepRow, planned: PlannedStep) -> bool:
        policy = START_POLICIES.get(step.start_policy)
        if policy is None:
            raise InvalidInput(
                f"step {step.name}: there is no start policy {step.start_policy}",
                hint=f"known: {', '.join(sorted(START_POLICIES))}",
                field="start_policy",
            )
        readers = {
            Reads.BLOCKS: self._blocks,
            Reads.DATASET: self._dataset,
            Reads.GENERATOR: self._generator,
        }
        part = readers[policy.reads](step, planned)
        if part is None:
            return False
        if part.plan.elements and policy.reads in (Reads.BLOCKS, Reads.DATASET):
            part = self._limited(planned, part)
        self._store(step, part)
        return part.is_full

    def _limited(self, planned: PlannedStep, part: _Slice) -> _Slice:
        """The part of a slice within the total of the splitting. A step that has reached it is closed."""
        algorithm = algorithm_of(planned)
        if not algorithm.total:
            return part
        plan, is_reached = limit_to_total(
            self.tx.connection,
            self.request.id,
            rows_of_step(stored_steps(self.request.specification, self.request.id), planned),
            algorithm,
            part.plan,
        )
        return _Slice(plan, part.taken, closed=True) if is_reached else part

    def _store(self, step: StepRow, part: _Slice) -> None:
        connection = self.tx.connection
        new = [
            new_element(connection, step.request, step.position, element, self.now)
            for element in part.plan.elements
        ]
        stored = self._insert(new) if new else 0
        self.room -= len(new)
        self.left_out.update({**part.plan.bad, **part.plan.rejected})
        if (part.taken, part.closed) != (step.taken, step.closed):
            queued_requests.save_progress(
                connection, step.request, step.position, part.taken, closed=part.closed
            )
        if stored:
            document: dict[str, object] = {"step": step.name, "elements": stored}
            if part.plan.bad:
                document["bad"] = dict(list(part.plan.bad.items())[:MOST_NAMED])
            detail = json.dumps(document, separators=(",", ":"))
            requests.record(connection, self.request, "intake", actor=ACTOR, now=self.now, detail=detail)

    def _check_number(self, new: int) -> int:
        """The number of elements of the request. Raises `TooLarge` if the policy does not allow `new` ones more."""
        number, counts = self.request.id, self.work_queue.element_counts
        count = counts.use(number)
        if count is None or self.work_queue.pool.peers.shared:
            count = elements.count_of_request(self.tx.connection, number)
        most = self.work_queue.pool.policy.requests.max_elements_per_request
        if count + new > most:
            raise TooLarge(
                f"the request would make {plural(count + new, 'element')}; the policy allows {most:,}",
                hint="make larger jobs or several requests, or raise requests.max_elements_per_request",
            )
        return count

    def _insert(self, new: Sequence[NewElement]) -> int:
        """Store the elements that are not there yet."""
        number, counts = self.request.id, self.work_queue.element_counts
        count = self._check_number(len(new))
        stored = elements.insert_new(self.tx.connection, new)
        counts[number] = count + stored
        self.tx.on_rollback(lambda: counts.pop(number, None))
        return stored

    # --- inputs

    def _input_dataset(self, step: StepRow) -> InputDataset:
        dataset = step.input_dataset
        datasets = dataset_blocks.datasets_by_id(self.tx.connection, [] if dataset is None else [dataset])
        if dataset is None or dataset not in datasets:
            raise InvalidInput(f"step {step.name} has no input data set", field="input")
        return datasets[dataset]

    def _blocks(self, step: StepRow, planned: PlannedStep) -> _Slice:
        """Closed blocks that were not taken yet."""
        connection, dataset = self.tx.connection, self._input_dataset(step)
        limit = self.room
        # Looked at before the blocks: the last block may be closed between the two looks.
        is_final = self._is_final(step, dataset)
        blocks = self._held(datasets.closed_blocks(connection, dataset.id, step.taken, limit))
        plan = START_POLICIES[step.start_policy].plan(self._step_input(step, planned, blocks))
        taken = _last_number(blocks, step.taken)
        is_full = len(blocks) == limit
        closed = not is_full and is_final
        if not is_full and not closed and step.after is None:
            self.waits_for.append(dataset.name)
        return _Slice(plan, taken, closed, is_full)

    def _is_final(self, step: StepRow, dataset: InputDataset) -> bool:
        """Whether a step gets no more than the blocks that are closed now."""
        if not dataset.open and not dataset_blocks.has_open_block(self.tx.connection, dataset.id):
            return True
        if step.after is not None or followed_datasets.is_behind(
            self.tx.connection, dataset.id, self.request.created
        ):
            return False
        until = self.request.open_until
        return until is None or self.now >= until

    def _dataset(self, step: StepRow, planned: PlannedStep) -> _Slice | None:
        """All blocks of a closed data set; None: it is open."""
        connection, dataset = self.tx.connection, self._input_dataset(step)
        if dataset.open or dataset_blocks.has_open_block(connection, dataset.id):
            if step.after is None:
                self.waits_for.append(dataset.name)
            return None
        blocks = datasets.closed_blocks(connection, dataset.id, 0, 10**9)
        [common] = hold_locations(self.tx, [[block.id for block in blocks]])
        alike = [block._replace(location_set=common) for block in blocks]
        plan = START_POLICIES[step.start_policy].plan(self._step_input(step, planned, alike))
        return _Slice(plan, _last_number(blocks, 0), closed=True)

    def _held(self, blocks: Sequence[BlockRow]) -> list[BlockRow]:
        """The blocks with their present locations, which stay until the elements are stored."""
        sets = hold_locations(self.tx, [[block.id] for block in blocks])
        return [block._replace(location_set=number) for number, block in zip(sets, blocks, strict=True)]

    def _generator(self, step: StepRow, planned: PlannedStep) -> _Slice:
        """Events that no element has."""
        job = algorithm_of(planned).generated_job
        # All elements but the last have whole jobs, so each job before has the same number of lumis.
        lumis = step.taken // job.events * job.lumis
        rest = planned.events - step.taken
        if step.taken and rest <= 0:
            return _Slice(StartPlan(), step.taken, closed=True)
        room = min(self.room, self._room_ahead(step))
        if room <= 0:
            return _Slice(StartPlan(), step.taken, closed=False)
        generator = Generator(rest, job.events, 1 + step.taken, 1 + lumis, job.events_per_lumi)
        self._check_number(-(-rest // (job.events * generator.max_jobs)))
        policy = START_POLICIES[step.start_policy]
        plan = policy.plan(StepInput(generator=generator, limit=room))
        taken = step.taken + sum(element.events for element in plan.elements)
        # Later cycles make the elements that agents cannot take soon.
        is_full = taken < planned.events and len(plan.elements) == self.room
        return _Slice(plan, taken, closed=taken >= planned.events, is_full=is_full)

    def _room_ahead(self, step: StepRow) -> int:
        """Elements to make now. 0 until agents have taken half of the elements that were made ahead."""
        ahead = self.work_queue.pool.policy.requests.elements_ahead
        available = elements.count_available(self.tx.connection, step.request, step.position, ahead)
        if self.request.state in GROWING and 2 * available > ahead:
            return 0
        return ahead - available

    def _step_input(self, step: StepRow, planned: PlannedStep, blocks: Sequence[BlockRow]) -> StepInput:
        needs_lumis = bool(planned.runs) or algorithm_of(planned).needs_lumis
        return StepInput(
            job_count=job_count_of(planned),
            blocks=[self._input_block(block, needs_lumis=needs_lumis) for block in blocks],
            block_list=frozenset(planned.blocks),
            block_bans=frozenset(planned.banned_blocks),
            runs=frozenset(planned.runs),
        )

    def _input_block(self, block: BlockRow, *, needs_lumis: bool) -> InputBlock:
        facts = InputBlock(block.id, block.name, block.files, block.events, block.size, block.location_set)
        if not needs_lumis:
            return facts
        runs: set[int] = set()
        lumis = 0
        for text in dataset_blocks.lumis_of(self.tx.connection, block.id):
            for run, first, last in json.loads(text):
                runs.add(run)
                lumis += last - first + 1
        return InputBlock(
            *(block.id, block.name, block.files, block.events, block.size, block.location_set),
            lumis,
            frozenset(runs),
        )


def _last_number(blocks: Sequence[BlockRow], otherwise: int) -> int:
    """The `closed_number` of the last of these closed blocks; `otherwise`: there is none."""
    return blocks[-1].closed_number or otherwise if blocks else otherwise
