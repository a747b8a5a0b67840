"""Accepts requests: checks them against the policy and the catalogue, and stores them with their steps."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pilotage.core.datasets.facts import ANYWHERE, ELSEWHERE
from pilotage.core.errors import Conflict, InvalidInput, Overloaded, check_mistakes
from pilotage.core.plurals import plural
from pilotage.core.policy import Policy
from pilotage.core.requests.json_format import specification_to_text, splitting_to_text
from pilotage.core.requests.plan import PlannedStep, plan_steps
from pilotage.core.requests.specification import Program, Specification, Step, UploadedFile
from pilotage.core.requests.states import UNFINISHED, RequestState
from pilotage.core.requests.trace import is_same_request
from pilotage.services.catalogue.following import catalogue_of
from pilotage.services.catalogue.outputs import create_output
from pilotage.services.catalogue.registering import output_catalogue
from pilotage.services.catalogue.removal import check_kept
from pilotage.services.catalogue.visibility import hidden_data_warnings, unknown_storage_warnings
from pilotage.services.pool.state import Pool
from pilotage.services.requests.estimate import (
    UNKNOWN_EFFORT,
    ExpectedNeeds,
    amounts_of,
    estimated_effort,
    estimated_jobs,
    sites_with_data,
    total_of,
)
from pilotage.services.requests.rights import Actor
from pilotage.services.submission.accept import resolve_inputs
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import agents, datasets, requests, resubmissions, submissions
from pilotage.store.tables.dataset_totals import Totals
from pilotage.store.tables.datasets import DataSetRow
from pilotage.store.tables.replicas import places_of
from pilotage.store.tables.requests import ALL_SITES, RequestRow, StepRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.submissions import UploadedInput

NO_INPUT = Totals()
HOME = "the home of the server"
PLACES_READ = 100
"""Places of a data set that are checked for a warning."""
SITES_NAMED = 5
"""Sites that a warning names."""


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request that was parsed and checked, but not stored yet."""

    specification: Specification
    """With the uploaded files of its programs, and with its group."""
    actor: Actor
    key: str
    origin: int | None = None
    root: int | None = None
    """The first request of its chain of resubmissions; None: it resubmits none."""
    warnings: tuple[str, ...] = ()
    jobs: int = 0
    """Estimated."""
    inputs: Totals = NO_INPUT
    """The contents of the data sets that it reads."""
    effort: ExpectedNeeds = UNKNOWN_EFFORT

    @property
    def text(self) -> str:
        return specification_to_text(self.specification)


def check_sites(request: Specification, policy: Policy) -> None:
    """Refuse sites that are not in the policy. An unknown banned site does no harm."""
    check_mistakes(
        InvalidInput(f"sites: {site} is not in the policy", hint=_nearest(site, policy.sites), field="sites")
        for site in request.sites or ()
        if site not in policy.sites
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]}?" if near else f"there are: {', '.join(names[:20]) or 'none'}"


def with_uploads(
    request: Specification,
    uploaded: Mapping[str, Sequence[UploadedInput]],
    size_of: Callable[[str], int | None],
    policy: Policy,
) -> Specification:
    """The request with the uploaded files of its programs. `uploaded`: by the name of the step."""

    def resolved(program: Program, step: str) -> Program:
        inputs = resolve_inputs(program.description, (), uploaded.get(step, ()), size_of, policy)
        files = (UploadedFile(item.name, item.source, item.size, item.executable) for item in inputs)
        return replace(program, inputs=tuple(files))

    def step_with_uploads(step: Step) -> Step:
        step = replace(step, program=resolved(step.program, step.name))
        if step.merge is None or step.merge.program is None:
            return step
        return replace(
            step, merge=replace(step.merge, program=resolved(step.merge.program, f"{step.name}.merge"))
        )

    return replace(request, steps=tuple(step_with_uploads(step) for step in request.steps))


def check_data(
    connection: Connection, prepared: PreparedRequest, pool: Pool, *, strict: bool, confirmed: bool
) -> PreparedRequest:
    """Check data sets, sites and size; returns it with warnings and the estimated number of jobs."""
    request, policy = prepared.specification, pool.policy
    named = {
        name: datasets.by_name(connection, name)
        for name in (*request.input_datasets, *request.pileup_datasets)
    }
    check_mistakes(
        InvalidInput(
            f"there is no data set {name}", hint=_dataset_hint(connection, policy, name), field="input"
        )
        for name, row in named.items()
        if row is None
    )
    rows = {name: row for name, row in named.items() if row is not None}
    amounts = amounts_of(connection, rows)
    jobs = estimated_jobs(request, amounts)
    most = policy.requests.confirm_jobs
    if jobs >= most and not confirmed:
        raise Conflict(
            f"the request would make about {plural(jobs, 'job')}",
            hint=f"confirm it with --yes, or split it into fewer than {plural(most, 'job')} (requests.confirm_jobs)",
        )
    warnings = list(_location_warnings(connection, request, rows, policy))
    if warnings and strict:
        raise InvalidInput(
            warnings[0], hint="add a site, set trust_input, or submit without --strict", field="sites"
        )
    replicas = [place for row in rows.values() for place in places_of(connection, row.id, PLACES_READ)]
    warnings += hidden_data_warnings(policy, replicas)
    warnings += unknown_storage_warnings(policy, replicas)
    warnings += _storage_warnings(request, pool)
    warnings += _team_warnings(connection, request.team, policy)
    inputs = total_of(amounts[name] for name in request.input_datasets)
    effort = estimated_effort(request, amounts)
    return replace(prepared, warnings=tuple(warnings), jobs=jobs, inputs=inputs, effort=effort)


def _dataset_hint(connection: Connection, policy: Policy, name: str) -> str:
    if catalogue_of(policy, name):
        return f"`pilotage dataset follow {name}` copies it from the catalogue; `pilotage request submit` does, too"
    return _nearest_dataset(connection, name)


def _nearest_dataset(connection: Connection, name: str) -> str:
    part = max(name.replace("-", "/").split("/"), key=len)
    similar = [row.name for row in datasets.page(connection, 0, 200, contains=part)] if part else []
    known = similar or [row.name for row in datasets.page(connection, 0, 200)]
    near = difflib.get_close_matches(name, known, 1, cutoff=0.4)
    return f"did you mean {near[0]}?" if near else "`pilotage dataset list` shows all"


def _location_warnings(
    connection: Connection, request: Specification, rows: Mapping[str, DataSetRow], policy: Policy
) -> Iterable[str]:
    """A warning for each data set that is at no site where the request may run."""
    allowed = set(policy.sites if request.sites is None else request.sites) - set(request.banned_sites)
    ignored = set(request.pileup_datasets if request.trust_pileup else ())
    for name, row in rows.items():
        sites = sites_with_data(connection, row.id)
        if name in ignored or sites is None or ANYWHERE in sites:
            continue
        if request.trust_input and name in request.input_datasets:
            if ELSEWHERE not in sites:
                raise InvalidInput(
                    f"trust_input: the files of {name} have paths, and no address that other sites can read",
                    hint=f"`pilotage dataset replicas {name} --add SITE=URL` registers one",
                    field="trust_input",
                )
            continue
        if sites & allowed:
            continue
        places = ", ".join(sorted(sites - {ELSEWHERE})) or "no site"
        yield f"no site of the request has data of {name}, which is at {places}: its work waits"


def _storage_warnings(request: Specification, pool: Pool) -> Iterable[str]:
    """A warning for files that jobs at some sites could not store."""
    policy = pool.policy
    allowed = set(policy.sites if request.sites is None else request.sites) - set(request.banned_sites)
    wanted = {
        f"outputs of step {step.name}": step.output.places for step in request.steps if step.output.files
    }
    if request.log_collect is not None:
        wanted["logs of jobs"] = request.log_collect.places
    # Each server may have a home of its own, so the name of its place is not known here.
    storage = {site: policy.storage_of(site, pool.server.home_storage or HOME) for site in sorted(allowed)}
    for files, named in wanted.items():
        places = tuple(map(policy.storage_address, named))
        without = [
            site for site, paths in storage.items() if not (set(paths) & set(places) if places else paths)
        ]
        if not without:
            continue
        if places:
            reason = f"none of its places is in sites.NAME.storage of the policy: {', '.join(named)}"
        else:
            reason = "there is no sites.NAME.storage in the policy"
        yield f"{files} at {_listed(without)} are not stored: {reason}"


def _listed(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    more = f" and {len(names) - SITES_NAMED} more sites" if len(names) > SITES_NAMED else ""
    return f"{', '.join(names[:SITES_NAMED])}{more}"


def _team_warnings(connection: Connection, team: str, policy: Policy) -> Iterable[str]:
    """A warning if no agent would take the request. The server starts an agent for its own team when needed."""
    if not team:
        yield "the request has no team: no agent takes it before `pilotage request assign --team NAME`"
        return
    teams = {*agents.teams(connection), policy.requests.agent_team} - {""}
    if team not in teams:
        advice = f"{_nearest(team, teams)}; " if teams else ""
        yield f"no agent of team {team} has joined: {advice}start one with `pilotage agent --team {team}`"


def submit(policy: Policy, tx: Transaction, prepared: PreparedRequest, now: float) -> RequestRow:
    """Store a request. The same owner and key again return the first one."""
    connection = tx.connection
    tx.lock(requests_of(prepared.actor.user))
    known = requests.by_key(connection, prepared.actor.user, prepared.key) if prepared.key else None
    if known is not None:
        if not is_same_request(known.specification, prepared.text):
            raise Conflict(
                f"the key {prepared.key} belongs to another request ({known.id})",
                hint="a key identifies one request: use another key, or none",
            )
        return known
    _check_quota(policy, connection, prepared.actor.user)
    use_uploads(tx, prepared.actor.user, prepared.specification, now)
    row = requests.insert(connection, _new_row(prepared, now))
    _create_steps(policy, tx, row, prepared.specification, now)
    if prepared.actor.manages:
        row = approve_and_assign(tx, row, prepared.actor, now)
    return row


def approve_and_assign(
    tx: Transaction, row: RequestRow, actor: Actor, now: float, reason: str = ""
) -> RequestRow:
    """Approve a new request, and assign it if it has a team."""
    moved = requests.move(
        tx.connection, row, RequestState.ASSIGNMENT_APPROVED, actor=actor.name, now=now, reason=reason
    )
    if not moved.team:
        return moved
    return requests.move(tx.connection, moved, RequestState.ASSIGNED, actor=actor.name, now=now)


def _new_row(prepared: PreparedRequest, now: float) -> RequestRow:
    request = prepared.specification
    return RequestRow(
        id=0,
        name=request.name,
        owner=prepared.actor.user,
        group=request.group,
        priority=request.priority,
        team=request.team,
        campaign=request.campaign,
        state=RequestState.NEW,
        specification=prepared.text,
        sites=ALL_SITES if request.sites is None else request.sites,
        banned_sites=request.banned_sites,
        trust_input=request.trust_input,
        trust_pileup=request.trust_pileup,
        open_until=now + request.open_for if request.open_for else None,
        created=now,
        changed=now,
        origin=prepared.origin,
        key=prepared.key or None,
        root=prepared.root,
    )


def requests_of(owner: str) -> str:
    """The lock that a transaction takes before its first look at the requests of an owner, if it may add one."""
    return f"requests of {owner}"


def _check_quota(policy: Policy, connection: Connection, owner: str) -> None:
    most = policy.requests.max_requests_per_owner
    if requests.count_unfinished(connection, owner, UNFINISHED) >= most:
        raise Overloaded(
            f"{owner} has {most:,} unfinished requests (requests.max_requests_per_owner)",
            hint="submit again when one of them has ended",
            retry_after=60.0,
        )


def use_uploads(tx: Transaction, owner: str, request: Specification, now: float) -> None:
    """Mark the uploaded files as used, so that retention keeps them."""
    digests = sorted({file.digest for program in request.programs.values() for file in program.inputs})
    if not digests:
        return
    if submissions.renew_uploads(tx.connection, owner, digests, now) != len(digests):
        raise InvalidInput(
            "an uploaded input file was deleted, because it was too old", hint="submit again with the files"
        )


def _create_steps(
    policy: Policy, tx: Transaction, row: RequestRow, request: Specification, now: float
) -> None:
    """The rows of the steps, and the data sets that they write."""
    written: dict[str, int] = {}
    steps: list[StepRow] = []
    for step in plan_steps(request, row.id):
        for output in (step.output, step.logs):
            if output.files and output.dataset not in written:
                written[output.dataset] = _create_dataset(policy, tx, row, output.dataset, step.position, now)
        steps.append(_step_row(tx.connection, row, step, written))
    check_kept(tx, {id_ for step in steps for id_ in (*step.read, *step.written)})
    requests.insert_steps(tx.connection, steps)


def _create_dataset(
    policy: Policy, tx: Transaction, row: RequestRow, name: str, step: int, now: float
) -> int:
    created = create_output(
        tx,
        name,
        owner=row.owner,
        group=row.group,
        request=row.id,
        step=step,
        catalogue=output_catalogue(policy, name),
        now=now,
    )
    if created is None:
        known = datasets.by_name(tx.connection, name)
        if known is not None and known.request in _chain(tx.connection, row):
            return known.id
        raise InvalidInput(
            f"the data set {name} exists already",
            hint="give output.dataset or log_collect.dataset another name, or leave it out",
            field="output.dataset",
        )
    return created.id


def _chain(connection: Connection, row: RequestRow) -> set[int]:
    """All requests of the chain of resubmissions of a request; empty: it resubmits none."""
    if row.root is None:
        return set()
    return {row.root, *(other.id for other in resubmissions.of_chain(connection, row.root))}


def _step_row(
    connection: Connection, row: RequestRow, step: PlannedStep, written: Mapping[str, int]
) -> StepRow:
    def id_of(name: str) -> int:
        if name in written:
            return written[name]
        dataset = datasets.by_name(connection, name)
        if dataset is None:
            raise InvalidInput(f"the data set {name} was removed meanwhile", field="input")
        return dataset.id

    return StepRow(
        request=row.id,
        position=step.position,
        name=step.name,
        type=step.type,
        start_policy=step.start_policy,
        splitting=splitting_to_text(step.splitting),
        input_dataset=id_of(step.input) if step.input else None,
        after=step.after,
        further_inputs=(),
        pileup=tuple(id_of(name) for name in step.pileup),
        output_dataset=written.get(step.output.dataset) if step.output.files else None,
        log_dataset=written.get(step.logs.dataset) if step.logs.files else None,
    )
