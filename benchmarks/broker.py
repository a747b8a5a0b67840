"""Job ads matched with CE ads: both sides' Requirements, residuals and host classes."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from benchmarks.ce_ads import Formula, ce_values, job_values, requirement_sets
from benchmarks.figure import Figure, told
from pilotage.core.brokering.broker import Broker, CeTable, Matches
from pilotage.core.brokering.match import CeFacts, match
from pilotage.core.classads import ClassAd, Expression, ListOf, Literal, parse_expression, unparse
from pilotage.core.glue.schema import kinds

SUMMARY = "ms for one job ad against 1,000 CE ads of 55 attributes; 5,000 job ads of 100 Requirements"

AIM, BATCH_AIM = 20.0, 2000.0


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ces", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--sets", type=int, default=100, help="different Requirements")
    parser.add_argument("--runs", type=int, default=5)


def run(asked: argparse.Namespace) -> Figure:
    rng = Random(1)
    values = [ce_values(number, rng) for number in range(asked.ces)]
    ces = [_facts(*of_ce) for of_ce in values]
    sets = requirement_sets(asked.sets, rng)
    expressions = [parse_expression(text) for text in sets]
    jobs = [
        _requester(expressions[rng.randrange(len(sets))], job_values(number, rng))
        for number in range(asked.jobs)
    ]
    each = [
        _requester(expression, job_values(7, Random(place))) for place, expression in enumerate(expressions)
    ]
    notes = {"facts": f"{len(values[0][0])} attributes, {sum(len(ce.hosts) for ce in ces):,} host classes"}
    cold, warm, again, batches, prepared = [], [], [], [], []
    for _ in range(asked.runs):
        broker = Broker(kinds())
        begun = time.process_time()
        table = _table(broker, ces)
        prepared.append(_since(begun))
        times = [_ask(broker, requester, table) for requester in each]
        cold.append(times[0])
        warm.append(statistics.median(times[1:]))
        again.append(statistics.median(_ask(broker, requester, table) for requester in jobs[:200]))
        broker = Broker(kinds())
        table = _table(broker, ces)
        begun = time.process_time()
        answers = [_match(broker, requester, table) for requester in jobs]
        batches.append(_since(begun))
        notes["evaluations"] = f"{broker.computed:,} for {asked.jobs * asked.ces:,} pairs"
        candidates = statistics.mean(int(found.candidates.sum()) for found in answers)
        notes["candidates"] = f"{told(candidates)} CEs in the mean"
    notes["CE ads prepared, once for each change"] = f"{told(statistics.median(prepared))} ms"
    notes["first ad, nothing shared"] = f"{told(statistics.median(cold))} ms"
    notes["ad of known Requirements"] = f"{told(statistics.median(again))} ms"
    batch = statistics.median(batches)
    notes[f"{asked.jobs:,} ads"] = f"{told(batch)} ms with residuals, aim {told(BATCH_AIM)}"
    peers = {"aim": AIM, "the first ad, nothing shared": round(statistics.median(cold), 2)}
    notes["without shared answers, a tenth of the CEs"] = f"{told(_unshared(each[:10], ces))} ms for each ad"
    peers |= _classad2(values, list(zip(sets, each, strict=True)), notes)
    ours = statistics.median(warm)
    return Figure(
        "broker", round(ours, 3), "ms", peers, round(ours / AIM, 3), [round(t, 3) for t in warm], notes
    )


def _since(begun: float) -> float:
    """ms of processor time."""
    return (time.process_time() - begun) * 1000


def _table(broker: Broker, ces: Sequence[CeFacts]) -> CeTable:
    numbered = [broker.numbered(facts) for facts in ces]
    return CeTable(numbered, 0.0)


def _match(broker: Broker, requester: ClassAd, table: CeTable) -> Matches:
    return broker.match(broker.requester(requester), table)


def _ask(broker: Broker, requester: ClassAd, table: CeTable) -> float:
    begun = time.process_time()
    matches = _match(broker, requester, table)
    for place in range(len(table)):
        matches.residual(place)
    return _since(begun)


def _unshared(requesters: Sequence[ClassAd], ces: Sequence[CeFacts]) -> float:
    begun = time.process_time()
    for requester in requesters:
        for facts in ces[::10]:
            match(requester, facts, now=0.0, kinds=kinds())
    return _since(begun) / len(requesters)


def _facts(values: Mapping[str, Any], classes: Sequence[Mapping[str, Any]]) -> CeFacts:
    own = {name: value for name, value in values.items() if name not in classes[0]}
    hosts = tuple(_ad({**own, **host}) for host in classes)
    return CeFacts(str(values["CEid"]), _ad(values), _ad(own), hosts)


def _requester(requirements: Expression, values: Mapping[str, Any]) -> ClassAd:
    return ClassAd((*_ad(values).attributes, ("Requirements", requirements)))


_parsed: dict[str, Expression] = {}


def _ad(values: Mapping[str, Any]) -> ClassAd:
    return ClassAd(tuple((name, _expression(value)) for name, value in values.items()))


def _expression(value: Any) -> Expression:
    if isinstance(value, Formula):
        return _parsed.setdefault(value, parse_expression(value))
    return ListOf(tuple(map(Literal, value))) if isinstance(value, tuple) else Literal(value)


def _classad2(
    values: Sequence[tuple[Mapping[str, Any], Any]],
    requesters: Sequence[tuple[str, ClassAd]],
    notes: dict[str, str],
) -> dict[str, float]:
    """The plain loop over CE ads, without residuals, host classes or Rank."""
    try:
        import classad2  # type: ignore[import-untyped]
    except ImportError as error:
        notes["classad2"] = f"not installed ({error}); group oracle"
        return {}
    both = " && ".join(("Requirements = AuthorizationCheck", "CloseOutputSECheck"))
    ces = []
    for of_ce, _ in values:
        text = unparse(_ad(of_ce))
        ces.append(classad2.ClassAd(f"{text.rstrip().removesuffix(']')}; {both} ]"))
    times = []
    for _, requester in requesters[:20]:
        job = classad2.ClassAd(unparse(requester))
        begun = time.process_time()
        for ce in ces:
            job.symmetricMatch(ce)
        times.append(_since(begun))
    return {"classad2's plain loop": round(statistics.median(times), 2)}
