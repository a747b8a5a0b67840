"""CE ads and requesters from files, matched without a server by the code that the server uses."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pilotage.core.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from pilotage.core.brokering.ce_ad import CeAd
    from pilotage.core.classads import ClassAd
    from pilotage.core.jobs.description import JobDescription
    from pilotage.core.queues.identity import QueueIdentity
    from pilotage.wire.matchmaking import MatchReport

MOST_BYTES = 64 * 1024 * 1024
MOST_NAMED = 20


def read_text(name: str) -> str:
    """The text of a file, or of standard input for "-"."""
    from pilotage.client import text_files

    return (
        sys.stdin.read(MOST_BYTES) if name == "-" else text_files.read_text(Path(name), "an ad", MOST_BYTES)
    )


def ce_ads_of_text(name: str, text: str, now: float) -> tuple[CeAd, ...]:
    """The CE ads of the text of a file, expired ones included. Errors name the file."""
    from pilotage.core.brokering.ad_text import load_ce_ads

    try:
        return load_ce_ads(text, now=now, allow_expired=True)
    except InvalidInput as error:
        error.message = f"{name}: {error.message}"
        raise


def read_ce_ads(names: Sequence[str], now: float) -> list[CeAd]:
    """The CE ads of files, expired ones included. Errors name the file."""
    ads: dict[str, CeAd] = {}
    for name in names:
        for ad in ce_ads_of_text(name, read_text(name), now):
            if ad.name in ads:
                raise InvalidInput(f"{name}: two ads have the identity {ad.name}")
            ads[ad.name] = ad
    return list(ads.values())


def only_ce(name: str, ads: Sequence[CeAd]) -> list[CeAd]:
    """The ad of the CE with this name. Raises NotFound."""
    chosen = [ad for ad in ads if ad.name == name]
    if not chosen:
        raise NotFound(
            f"no ad is of the CE {name}", hint=f"CEs: {', '.join(ad.name for ad in ads[:MOST_NAMED])}"
        )
    return chosen


def read_description(name: str) -> JobDescription:
    """The description of a job file, in any format that `submit` takes."""
    from pilotage.client.description import read_description_file, read_description_text

    described = read_description_text(read_text(name)) if name == "-" else read_description_file(Path(name))
    return described.submission.description


def match_files(
    description: JobDescription,
    ads: Sequence[CeAd],
    *,
    owner: str,
    group: str,
    vo: str,
    limit: int,
    now: float,
) -> MatchReport:
    """Match a description with CE ads."""
    from collections import Counter

    from pilotage.cli.matchmaking.answers import ce_match, fitting_first
    from pilotage.core.brokering.ce_answer import answer_for, facts_of
    from pilotage.core.brokering.match import match, rank_of
    from pilotage.core.brokering.misspelt import misspelt_names
    from pilotage.core.classads import parse_expression, unparse
    from pilotage.core.glue.schema import DEFAULT_RANK, kinds
    from pilotage.core.queues.identity import QueueIdentity
    from pilotage.wire.matchmaking import MatchReport

    queue = QueueIdentity(
        owner,
        group,
        requirements=description.requirements,
        host_requirements=description.host_requirements,
        output_se=description.output_se,
    )
    requester = _requester(queue, vo)
    rank = parse_expression(DEFAULT_RANK)
    answers = []
    for ad in ads:
        facts = facts_of(ad, is_current=ad.is_current(now))
        answer = match(requester, facts, now=now, rank=rank_of(rank, facts.ad), kinds=kinds())
        shown = ce_match(answer_for(requester, facts, answer, kinds()))
        shown.updated, shown.is_expired = ad.updated or None, not ad.is_current(now)
        answers.append(shown)
    answers.sort(key=fitting_first)
    verdicts = Counter(answer.verdict for answer in answers)
    return MatchReport(
        owner,
        group,
        queue.match_text,
        unparse(requester),
        dict(verdicts),
        answers[:limit],
        list(misspelt_names(requester.get("Requirements") or requester)),
    )


def _requester(queue: QueueIdentity, vo: str) -> ClassAd:
    from pilotage.core.brokering.requester_ad import requester_ad
    from pilotage.core.policy import Policy
    from pilotage.core.policy.model import Group

    return requester_ad(queue, Policy(groups={queue.group: Group(vo=vo)}, users={}))
