"""The accounts of a batch system that a new CE may charge, with the partitions and QOS that they allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pilotage.core.errors import InvalidInput
from pilotage.core.policy.new_ce import PartitionFacts


@dataclass(frozen=True, slots=True)
class AccountFacts:
    """One way in which the server's user may charge an account, as the batch system describes it."""

    name: str
    partition: str
    """The only partition that it is for; empty: any."""
    qos: tuple[str, ...]
    """The QOS that it may use; empty: not limited."""
    default: bool
    """It is charged if nobody names an account."""


def allowed_partitions(
    accounts: Sequence[AccountFacts], partitions: Sequence[PartitionFacts], account: str
) -> list[PartitionFacts]:
    """The partitions that an account may use; empty: any account. Without known accounts, all."""
    ways = _ways(accounts, account)
    if not ways or any(not way.partition for way in ways):
        return list(partitions)
    allowed = {way.partition for way in ways}
    return [partition for partition in partitions if partition.name in allowed]


def choose_account(
    accounts: Sequence[AccountFacts], partition: str, options: Mapping[str, str]
) -> dict[str, str]:
    """`options`, with an account where the default one may not be used. Accounts and QOS are checked."""
    if not accounts:
        return dict(options)
    account, qos = options.get("account", ""), options.get("qos", "")
    usable = [way for way in _ways(accounts, account) if way.partition in ("", partition)]
    if not usable:
        who = f"account {account}" if account else "no account of the server's user"
        raise InvalidInput(
            f"{who} may use partition {partition}"
            if not account
            else f"{who} may not use partition {partition}",
            hint=f"accounts: {_listed(accounts)}",
        )
    with_qos = [way for way in usable if not qos or not way.qos or qos in way.qos]
    if not with_qos:
        known = sorted({name for way in usable for name in way.qos})
        raise InvalidInput(
            f"the server's user has no QOS {qos} there", hint=f"QOS: {', '.join(known) or 'none'}"
        )
    if account or any(way.default for way in with_qos):
        return dict(options)
    names = sorted({way.name for way in with_qos})
    if len(names) > 1:
        raise InvalidInput(
            f"the default account may not be used with partition {partition}"
            + (f" and QOS {qos}" if qos else ""),
            hint=f"choose one with --account: {', '.join(names)}",
        )
    return {**options, "account": names[0]}


def _ways(accounts: Sequence[AccountFacts], account: str) -> list[AccountFacts]:
    """The ways to charge `account`; empty: all. An unknown account is an error."""
    if not account or not accounts:
        return list(accounts)
    ways = [way for way in accounts if way.name == account]
    if not ways:
        raise InvalidInput(
            f"the server's user may not charge account {account}", hint=f"accounts: {_listed(accounts)}"
        )
    return ways


def _listed(accounts: Sequence[AccountFacts]) -> str:
    """Such as "physics (partition long), theory"."""
    return ", ".join(
        dict.fromkeys(
            f"{way.name} (partition {way.partition})" if way.partition else way.name for way in accounts
        )
    )
