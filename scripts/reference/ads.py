"""The reference page of the attributes that CE ads and offers have, generated from the schema."""

from __future__ import annotations

from pilotage.core.brokering.ce_ad import FUTURE_TOLERANCE
from pilotage.core.brokering.pilot_ads import ATTRIBUTES as OF_OFFER
from pilotage.core.brokering.requester_ad import ATTRIBUTES as OF_REQUESTER
from pilotage.core.classads.partial import Kind
from pilotage.core.glue.information import DEFAULT_EXPIRY
from pilotage.core.glue.schema import ATTRIBUTES, FixedBy, GlueAttribute

_KINDS = {
    Kind.INTEGER: "integer",
    Kind.QUANTITY: "integer",
    Kind.NUMBER: "number",
    Kind.STRING: "text",
    Kind.BOOLEAN: "true or false",
    Kind.STRINGS: "list of texts",
    Kind.ANY: "list of ads",
}

_BEFORE = f"""\
# Attributes of ads

<!-- Made by scripts/write-docs from core/glue/schema.py; a test compares. -->

Computing elements are described in names of the GLUE schema 1.x, as in gLite. `Requirements` may refer to these names
as `other.NAME`. Names are compared without case. A site may add names of its own.

## Ads of CEs

The ad of a CE has the form `[ id; update_time; expiry_time; info = [ … ] ]`. `update_time` is in seconds since 1970.
The ad expires `expiry_time` seconds later, by default {DEFAULT_EXPIRY:.0f}. Then the state of the CE (`GlueCEState…`)
is unknown: it does not count as free. An ad from the future is refused; clocks may differ by
{FUTURE_TOLERANCE:.0f} seconds.

Its `Requirements` are `AuthorizationCheck && CloseOutputSECheck`, unless it has some of its own. Where the ad has
`GlueCEAccessControlBaseRule` or `GlueCESEBindGroupSEUniqueID`, it gets the check of it. A check that is absent is true.

An ad in a file may have this form, or may be the inner ad alone. It may also be lines `Name = value` as
`condor_status -long` prints them, with empty lines between several ads. Its identity is `id`, `GlueCEUniqueID`, `CEid`
or `Name`. A file has at most 1 MiB.

## The offer of a pilot

The offer that a pilot makes with its node is an ad too. An attribute has the first value that there is of these:

1. Pilotage's own, in the table below
2. the value in the CE's ad, if the CE fixes it
3. the value that the pilot has measured on its node, and all else that it found there
4. the value of the node's class of hosts. The class is found by the name of the node in the batch system, whole or up
   to its first dot. A CE with one class needs no name.
5. the value in the CE's ad, which is the minimum over its hosts

So everything that the CE's ad fixes is true of each offer. Pilots are submitted by these facts.

| attribute | meaning |
|---|---|
"""

_REQUESTER = """
## The requester's ad

A CE's `Requirements` are evaluated against the ad of the job or pilot, where they name it `other`. In the
`Requirements` of the job the same attributes are `my.NAME`.

| attribute | meaning |
|---|---|
"""

_SCHEMA = """
## The schema

*Fixed by* tells whose value it is. A CE or its site fixes a value for all of its nodes. A value of hosts in the CE's
ad is the minimum over its hosts. It is unknown when a residual is computed, unless the CE is declared homogeneous.

| attribute | type | unit | fixed by | meaning |
|---|---|---|---|---|
"""


def reference_markdown() -> str:
    return (
        _BEFORE
        + "".join(f"| `{name}` | {meaning} |\n" for name, meaning in OF_OFFER.items())
        + _REQUESTER
        + "".join(f"| `{name}` | {meaning} |\n" for name, meaning in OF_REQUESTER.items())
        + _SCHEMA
        + "".join(_row(attribute) for attribute in ATTRIBUTES)
    )


def _row(attribute: GlueAttribute) -> str:
    fixed_by = (
        "hosts"
        if attribute.fixed_by is FixedBy.HOSTS
        else "CE, until it expires"
        if attribute.dynamic
        else "CE"
    )
    kind = _KINDS[attribute.kind]
    return f"| `{attribute.name}` | {kind} | {attribute.unit} | {fixed_by} | {attribute.meaning} |\n"
