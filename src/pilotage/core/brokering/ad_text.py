"""CE ads from a text: with the wrapper of gLite, flat, or as `condor_status -long` prints them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

from pilotage.core.brokering.ce_ad import FUTURE_TOLERANCE, CeAd, HostAd, complete, without_hosts
from pilotage.core.classads import (
    UNDEFINED,
    ClassAd,
    Expression,
    ListOf,
    Literal,
    ParserLimits,
    Suspicion,
    evaluate,
    parse_ad,
    parse_expression,
    references,
    suspicions,
)
from pilotage.core.classads.partial import Kind
from pilotage.core.errors import InvalidInput, TooLarge
from pilotage.core.glue.information import DEFAULT_EXPIRY
from pilotage.core.glue.schema import BY_NAME, nearest_name

LIMITS: Final = ParserLimits(text=1024 * 1024, depth=100, nodes=250_000)
"""Limits of the text of one ad, and of a file of ads."""
MOST_ADS: Final = 10_000

_IDENTITIES: Final = ("GlueCEUniqueID", "CEid", "Name")
_UPDATES: Final = ("update_time", "LastHeardFrom", "MyCurrentTime")
_EXPIRIES: Final = ("expiry_time", "TTLCEinfo", "ClassAdLifetime")
_EVALUATION_STEPS: Final = 2_000
_DEFINITION: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|'[^']+')\s*=(?![=?!])(.*)", re.DOTALL)


def load_ce_ads(text: str, *, now: float, allow_expired: bool = False) -> tuple[CeAd, ...]:
    """The CE ads of a text: one in brackets, or one or several as lines `Name = value`, empty lines between them.

    Raises `InvalidInput` with the line where the text is wrong. Each ad must have an identity: `id`, GlueCEUniqueID,
    CEid or Name. It must not come from the future, nor have expired unless `allow_expired`. Without `update_time` its
    age is not known, and it counts as current.
    """
    if len(text.encode("utf-8", "surrogatepass")) > LIMITS.text:
        raise TooLarge(f"the text is longer than {LIMITS.text} bytes")
    ads = tuple(_ce_ad(ad, now, allow_expired) for ad in parse_ads(text))
    if not ads:
        raise InvalidInput("the text is empty", hint="an ad begins with `[`, or has lines `Name = value`")
    names = [ad.name for ad in ads]
    if doubled := next((name for name in names if names.count(name) > 1), ""):
        raise InvalidInput(f"two ads have the identity {doubled}")
    return ads


def parse_ads(text: str) -> Iterator[ClassAd]:
    """The trees of the ads of a text, as they are written."""
    start = _first_character(text)
    if start == "[":
        yield parse_ad(text, LIMITS)
    elif start:
        yield from _long_ads(text)


def suspicions_of(ad: ClassAd) -> tuple[Suspicion, ...]:
    """Legal things in a CE ad that are probably mistakes.

    They are bare dotted names, unknown functions, attributes that define each other in a circle, and misspelt names
    of the GLUE schema. A value of another type than the schema's is one too.
    """
    inner = _inner(ad)
    suspicious = [*suspicions(ad), *_circles(inner)]
    for name, expression in inner.attributes:
        near = nearest_name(name)
        if near:
            suspicious.append(Suspicion(name, f"the GLUE schema has no {name}: is {near} meant?"))
        elif mistake := _wrong_kind(name, expression, inner):
            suspicious.append(Suspicion(name, mistake))
    return tuple(sorted(set(suspicious), key=lambda suspicion: (suspicion.path, suspicion.message)))


def _ce_ad(ad: ClassAd, now: float, allow_expired: bool) -> CeAd:
    inner = complete(_inner(ad))
    name = _identity(ad, inner)
    updated = _number(ad, inner, _UPDATES, name)
    expiry = _number(ad, inner, _EXPIRIES, name)
    machine = _text(inner, "MyType") == "Machine"
    loaded = CeAd(
        name=name,
        ad=inner,
        homogeneous=machine,
        updated=updated or 0.0,
        expiry=DEFAULT_EXPIRY if expiry is None else expiry,
        fixed=inner if machine else without_hosts(inner),
        hosts=(HostAd(1, inner),) if machine else (),
    )
    if loaded.is_from_future(now):
        ahead = loaded.updated - now
        raise InvalidInput(
            f"the ad of {name} is from the future: update_time is {ahead:.0f} s ahead",
            hint=f"clocks may differ by {FUTURE_TOLERANCE:.0f} s",
            field="update_time",
        )
    if not allow_expired and not loaded.is_current(now):
        ago = now - loaded.updated - loaded.expiry
        raise InvalidInput(
            f"the ad of {name} has expired {ago:.0f} s ago", hint="ask the CE again", field="expiry_time"
        )
    return loaded


def _inner(ad: ClassAd) -> ClassAd:
    """The ad that is matched: `info` of the wrapper, or the ad itself."""
    info = ad.get("info")
    return info if isinstance(info, ClassAd) else ad


def _identity(ad: ClassAd, inner: ClassAd) -> str:
    name = _text(ad, "id") or next((name for key in _IDENTITIES if (name := _text(inner, key))), "")
    if not name:
        raise InvalidInput(
            "the ad has no identity",
            hint=f"define id, or one of {', '.join(_IDENTITIES)}, as a text",
            field="id",
        )
    return name


def _text(ad: ClassAd, name: str) -> str:
    expression = ad.get(name)
    value = expression.value if isinstance(expression, Literal) else None
    return value.strip() if isinstance(value, str) else ""


def _number(ad: ClassAd, inner: ClassAd, names: tuple[str, ...], of: str) -> float | None:
    """The first of `names` that the ad defines, as a number of at least 0."""
    for name in names:
        expression = ad.get(name) or inner.get(name)
        if expression is None:
            continue
        value = evaluate(expression, my=inner, steps=_EVALUATION_STEPS)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise InvalidInput(f"the ad of {of}: {name} must be a number of seconds", field=name)
        return float(value)
    return None


def _wrong_kind(name: str, expression: Expression, inner: ClassAd) -> str:
    """Why a constant is not of the type that the schema has; empty: it is, or it is not a constant."""
    known = BY_NAME.get(name.lower())
    if known is None or not isinstance(expression, Literal | ListOf) or expression == Literal(UNDEFINED):
        return ""
    value = evaluate(expression, my=inner, steps=_EVALUATION_STEPS)
    fits = {
        Kind.INTEGER: type(value) is int,
        Kind.QUANTITY: type(value) is int,
        Kind.NUMBER: type(value) in (int, float),
        Kind.STRING: isinstance(value, str),
        Kind.BOOLEAN: isinstance(value, bool),
        Kind.STRINGS: isinstance(value, tuple),
        Kind.ANY: True,
    }
    return "" if fits[known.kind] else f"{known.name} is of type {known.kind} in the GLUE schema"


def _circles(ad: ClassAd) -> Iterator[Suspicion]:
    """Attributes whose values need themselves. Their value is undefined."""
    needs = {
        name.lower(): {
            reference.name
            for reference in references(expression)
            if reference.scope in ("", "my", ".") and reference.name in ad.index
        }
        for name, expression in ad.attributes
    }
    open_names = {name: set(others) for name, others in needs.items()}
    free = [name for name, others in open_names.items() if not others]
    users: dict[str, list[str]] = {}
    for name, others in needs.items():
        for other in others:
            users.setdefault(other, []).append(name)
    while free:
        done = free.pop()
        open_names.pop(done, None)
        for user in users.get(done, ()):
            if user in open_names:
                open_names[user].discard(done)
                if not open_names[user]:
                    free.append(user)
    for name, _ in ad.attributes:
        if name.lower() in open_names:
            yield Suspicion(name, "its value needs itself, perhaps through other attributes: it is undefined")


def _first_character(text: str) -> str:
    """The first character that is neither space nor in a comment."""
    stripped = re.sub(r"\A(?:\s+|//[^\n]*\n?|#[^\n]*\n?|/\*.*?\*/)*", "", text, count=1, flags=re.DOTALL)
    return stripped[:1]


def _long_ads(text: str) -> Iterator[ClassAd]:
    """Ads as lines `Name = value`, empty lines between them. Lines with `#` are comments."""
    attributes: dict[str, tuple[str, Expression]] = {}
    count = 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.strip().startswith(("#", "//")):
            continue
        if line.strip():
            name, expression = _definition(line, number)
            if name.lower() in attributes:
                raise InvalidInput(f"{name} has two values", line=number, hint="remove one", field=name)
            attributes[name.lower()] = (name, expression)
        elif attributes:
            count += 1
            if count > MOST_ADS:
                raise TooLarge(f"the text has more than {MOST_ADS:,} ads")
            yield ClassAd(tuple(attributes.values()))
            attributes = {}


def _definition(line: str, number: int) -> tuple[str, Expression]:
    match = _DEFINITION.fullmatch(line)
    if match is None:
        raise InvalidInput("a line must be `Name = value`", line=number)
    try:
        return match[1].strip("'"), parse_expression(_new_escapes(match[2]), LIMITS)
    except InvalidInput as error:
        raise InvalidInput(f"{match[1]}: {error.message}", line=number, hint=error.hint) from None


def _new_escapes(text: str) -> str:
    r"""In lines of this form a backslash escapes only quotes: `C:\temp` stays as it is."""
    return re.sub(r'\\(?!")', r"\\\\", text)
