"""Routes for the policy and its versions. Administrators only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fastapi import Response

from pilotage.core.brokering.policy_suspicions import policy_suspicions
from pilotage.core.errors import InvalidInput, NotFound
from pilotage.core.policy import ADMINISTRATOR, Policy, known_properties, parse, warnings
from pilotage.server.context import Context
from pilotage.server.http.auditing import audited_call
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.ce_checks import machine_warnings
from pilotage.server.http.pages import page
from pilotage.server.tokens import Caller
from pilotage.services.audit import audited
from pilotage.services.policy.apply import apply_policy, in_force, need_version, roll_back
from pilotage.services.policy.impact import stranded_work
from pilotage.store.tables import instance, pilots
from pilotage.store.writer.transaction import Transaction
from pilotage.wire import limits
from pilotage.wire.policy import (
    CHANGE_POLICY,
    LIST_VERSIONS,
    ROLL_BACK,
    SHOW_POLICY,
    SHOW_VERSION,
    PilotsLeft,
    PolicyChange,
    PolicyDocument,
    PolicyRollback,
    PolicyVersion,
    Stranded,
)
from pilotage.wire.queries import PageQuery

router = CallRouter("policy")


@router.call(SHOW_POLICY)
def policy(context: TheContext, caller: TheCaller) -> PolicyDocument:
    """The policy in force, with the jobs and pilots that it excludes."""
    return _describe(context, caller, context.pool.policy, _current(context))


@router.call(CHANGE_POLICY)
async def change_policy(body: PolicyChange, context: TheContext, caller: TheCaller) -> PolicyDocument:
    """Apply a whole policy. If it is refused, the policy in force stays."""
    new: Policy = await asyncio.to_thread(parse, body.text)
    if body.dry_run:
        current = await asyncio.to_thread(_current, context)
        need_version(current.version, body.expect)
        document = await asyncio.to_thread(_describe, context, caller, new, current)
        document.text = body.text
        return await _with_checks(context, document, new, list(new.ces))
    pool, now = context.pool, context.clock()
    changed = _changed_ces(pool.policy, new)
    version = await context.writer.acall(
        audited(
            audited_call(context, caller, CHANGE_POLICY, "policy", body.reason),
            lambda tx: apply_policy(
                pool, tx, new, body.text, by=caller.user, reason=body.reason, now=now, expect=body.expect
            ),
            state=_version_text,
        )
    )
    context.wake.local_ces.set()
    context.wake.shares.set()
    document = await asyncio.to_thread(lambda: _describe(context, caller, new, _version(context, version)))
    return await _with_checks(context, document, new, changed)


@router.call(LIST_VERSIONS)
def versions(asked: PageQuery, context: TheContext, caller: TheCaller) -> Response:
    """The versions of the policy, newest first, with who applied each, when and why."""
    kept = instance.policy_versions(context.readers.connection(), asked.after, asked.limit)
    rows = (
        (row.version, PolicyVersion(row.version, row.applied_at, row.applied_by, row.reason)) for row in kept
    )
    return page("versions", rows, asked.limit)


@router.call(SHOW_VERSION)
def one_version(version: limits.Id, context: TheContext, caller: TheCaller) -> PolicyDocument:
    """The text of one version, as it was applied."""
    return _document(_version(context, version))


@router.call(ROLL_BACK)
async def rollback(body: PolicyRollback, context: TheContext, caller: TheCaller) -> PolicyDocument:
    """Apply the text of an earlier version as a new one, if it is still valid."""
    earlier = await asyncio.to_thread(_version, context, body.version)
    try:
        old: Policy = await asyncio.to_thread(parse, earlier.text)
    except InvalidInput as error:
        message = f"version {body.version} is not valid any more: {error.message}"
        hint = (
            error.hint
            or f"`pilotage policy show --version {body.version}` shows its text; apply a corrected one"
        )
        raise InvalidInput(message, hint=hint, line=error.line, column=error.column) from None
    pool, now = context.pool, context.clock()
    changed = _changed_ces(pool.policy, old)
    version = await context.writer.acall(
        audited(
            audited_call(context, caller, ROLL_BACK, f"policy, to version {body.version}", body.reason),
            lambda tx: roll_back(
                pool, tx, old, earlier, by=caller.user, reason=body.reason, now=now, expect=body.expect
            ),
            state=_version_text,
        )
    )
    context.wake.local_ces.set()
    context.wake.shares.set()
    document = await asyncio.to_thread(lambda: _describe(context, caller, old, _version(context, version)))
    return await _with_checks(context, document, old, changed)


async def _with_checks(
    context: Context, document: PolicyDocument, policy: Policy, names: Sequence[str]
) -> PolicyDocument:
    """The document with the warnings that take long. `names`: the CEs to check on this machine."""
    document.warnings += await asyncio.to_thread(policy_suspicions, policy)
    document.warnings += await machine_warnings(context, policy, names)
    return document


def _changed_ces(before: Policy, after: Policy) -> list[str]:
    """The CEs that are new or have other keys."""
    return [name for name, ce in after.ces.items() if before.ces.get(name) != ce]


def _version_text(tx: Transaction) -> str:
    """For the audit log: the texts of all versions are kept, and `pilotage policy diff` compares them."""
    return f"version {in_force(tx)}"


def _current(context: Context) -> instance.PolicyRow:
    policy = instance.current_policy(context.readers.connection())
    assert policy is not None
    return policy


def _version(context: Context, version: int) -> instance.PolicyRow:
    policy = instance.policy_version(context.readers.connection(), version)
    if policy is None:
        raise NotFound(f"there is no version {version} of the policy", hint="see `pilotage policy history`")
    return policy


def _document(found: instance.PolicyRow) -> PolicyDocument:
    return PolicyDocument(found.version, found.text, found.applied_at, found.applied_by, reason=found.reason)


def _describe(context: Context, caller: Caller, new: Policy, found: instance.PolicyRow) -> PolicyDocument:
    """The document of a version, with the warnings and effects of the policy `new`."""
    entries = list(context.pool.queues.index.entries.values())
    left = stranded_work(new, entries, pilots.live_counts(context.readers.connection()))
    document = _document(found)
    document.warnings = [*_lockout_warnings(caller, new), *warnings(new)]
    document.properties = known_properties(new)
    document.stranded_jobs = left.jobs
    document.stranded = [Stranded(row.group, row.owner, row.waiting) for row in left.stranded]
    document.pilots_left = [PilotsLeft(*row) for row in left.pilots]
    return document


def _lockout_warnings(caller: Caller, new: Policy) -> list[str]:
    if caller.home or ADMINISTRATOR in new.properties(caller.user, caller.group):
        return []
    return [
        f"{caller.user} in group {caller.group} does not have {ADMINISTRATOR} in this policy: once it is in force,"
        " your token can no longer change anything. The owner of the home always can."
    ]
