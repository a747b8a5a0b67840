"""The requester's ad: the ad of a job, and of the pilots of its queue, with the identity that submits."""

from __future__ import annotations

from typing import Final

from pilotage.core.classads import ClassAd, Expression, Literal, ParserLimits, parse_expression
from pilotage.core.policy import Policy
from pilotage.core.queues.identity import QueueIdentity

ATTRIBUTES: Final = {
    "CertificateSubject": "the `subject` of the user in the policy, else the owner",
    "VirtualOrganisation": "the `vo` of the group in the policy; undefined if it has none",
    "OutputSE": "the storage element that the outputs go to; undefined if the job names none",
    "Owner": "the owner of the job",
    "OwnerGroup": "the group of the job",
    "Requirements": "what the job asks of a CE and its nodes; absent if it asks nothing",
}
"""The attributes of the requester's ad, with their meanings."""

_ONE: Final = ParserLimits()
LIMITS: Final = ParserLimits(text=3 * _ONE.text, depth=_ONE.depth + 2, nodes=3 * _ONE.nodes)
"""A match text joins two expressions that are within the limits of one."""


def submitting_identity(policy: Policy, owner: str, group: str) -> tuple[str, str]:
    """(certificate subject, virtual organisation) of an owner in a group; the second is empty if there is none."""
    user, known = policy.users.get(owner), policy.groups.get(group)
    return (user.subject if user and user.subject else owner), (known.vo if known else "")


def requester_ad(queue: QueueIdentity, policy: Policy) -> ClassAd:
    """The ad of the jobs of a queue, and of the pilots that are submitted for it."""
    attributes: list[tuple[str, Expression]] = [*requester(queue, policy).attributes]
    if queue.match_text:
        attributes.append(("Requirements", match_expression(queue.match_text)))
    return ClassAd(tuple(attributes))


def requester(queue: QueueIdentity, policy: Policy) -> ClassAd:
    """The requester's ad without Requirements: against it a CE's Requirements are evaluated."""
    subject, organisation = submitting_identity(policy, queue.owner, queue.group)
    values = {
        "CertificateSubject": subject,
        "VirtualOrganisation": organisation,
        "OutputSE": queue.output_se,
        "Owner": queue.owner,
        "OwnerGroup": queue.group,
    }
    return ClassAd(tuple((name, Literal(value)) for name, value in values.items() if value))


def match_expression(text: str) -> Expression:
    """The tree of a queue's match text."""
    return parse_expression(text, LIMITS)
