"""Finds a section of the policy by the name that a user gave, and a batch system that has no section yet."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import msgspec

from pilotage.core.errors import InvalidInput, NotFound
from pilotage.core.policy.batch_systems import BATCH_SYSTEMS
from pilotage.core.policy.bounds import violation_in_options
from pilotage.core.policy.ce_model import Ce
from pilotage.core.policy.ce_names import is_plain
from pilotage.core.policy.model import Policy
from pilotage.core.policy.new_ce import split_words
from pilotage.core.policy.reach import parse_reach


def ce_by_name(policy: Policy, name: str) -> Ce:
    """The CE of this name. Raises NotFound with the nearest name, else with the names that there are."""
    if (ce := policy.ces.get(name)) is None:
        shown = name if is_plain(name) else repr(name)
        lower = {known.lower(): known for known in policy.ces}
        near = difflib.get_close_matches(name.strip().lower(), lower, 1, 0.8)
        hint = f"did you mean {lower[near[0]]}?" if near else f"CEs: {', '.join(policy.ces) or 'none'}"
        raise NotFound(f"the policy has no CE {shown}", hint=hint)
    return ce


def ce_to_ask(kind: str, options: Mapping[str, str], reach: str = "") -> Ce:
    """A CE of the batch system of this type, to ask it about itself. `options`: keys of `[ces.NAME.TYPE]`.

    `reach`: as of the policy.
    """
    if reach:
        parse_reach(reach)
    system = BATCH_SYSTEMS.get(kind)
    if system is None:
        if options:
            raise InvalidInput(f"a batch system {kind} has no options", field="option")
        return Ce(site="", type=kind, reach=reach)
    known = system.__struct_fields__
    if unknown := [key for key in options if key not in known]:
        raise InvalidInput(
            f"{kind} has no option {unknown[0]}", hint=f"options: {', '.join(known)}", field="option"
        )
    try:
        typed = {
            key: split_words(text) if isinstance(getattr(system(), key), tuple) else text
            for key, text in options.items()
        }
        chosen = msgspec.convert(typed, system, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"option of {kind}: {error}", field="option") from None
    for key, reason in chosen.mistakes():
        raise InvalidInput(reason, field=key)
    if reason := violation_in_options(kind, chosen):
        raise InvalidInput(reason, field="option")
    return msgspec.structs.replace(Ce(site="", type=kind, reach=reach), **{kind: chosen})
