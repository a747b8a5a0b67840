"""Flags of a forwarded requirement accept exactly the valid queues of a real Grid Engine, where the job then runs."""

from __future__ import annotations

import getpass
from collections.abc import Iterator

import pytest

from pilotage.core.classads import ClassAd, Literal, parse_expression, quote, unparse
from pilotage.core.classads.partial import residual
from pilotage.core.forwarding.forward import CANNOT_BE_TRUE, CeTerms, Forwarding, forward
from pilotage.core.glue.information import HostClass
from pilotage.core.glue.schema import kinds
from pilotage.core.policy.batch_systems.sge import SgeOptions
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.runner import LocalRunner
from pilotage.outside.batch.sge.adapter import SgeBatch
from tests import sge
from tests.contract.test_forwarding_slurm import DOCUMENT, SI00
from tests.deadlines import PATIENCE
from tests.unit.core.forwarding.test_forward import HOSTILE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * PATIENCE)]

QUEUES = {
    "slow.q": {"complex_values": "si00=400"},
    "fast.q": {"complex_values": "si00=600"},
    "best.q": {"complex_values": "si00=800"},
    "plain.q": {},
}
RULES = {SI00: "complex si00 <="}


@pytest.fixture(scope="module")
def cell() -> Iterator[sge.GridEngine]:
    with sge.grid_engine(QUEUES, slots=1) as made:
        yield made


def hosts(cell: sge.GridEngine, options: SgeOptions) -> tuple[HostClass, ...]:
    """As the CE's information has them, with the value of the complex under its name in GLUE."""
    known = batch_of(cell, options).information().host_classes
    return tuple(
        HostClass(
            host.count,
            {**host.attributes, **({SI00: host.attributes["si00"]} if "si00" in host.attributes else {})},
            host.hosts,
        )
        for host in known
    )


def batch_of(cell: sge.GridEngine, options: SgeOptions) -> SgeBatch:
    return SgeBatch(LocalRunner(cell.environment), getpass.getuser(), options, cell.cell)


def forwarded(
    cell: sge.GridEngine, text: str, maximum: int | None, options: SgeOptions, *, names: bool = False
) -> Forwarding:
    fixed = ClassAd(() if maximum is None else (("GlueCEPolicyMaxCPUTime", Literal(maximum)),))
    left = residual(parse_expression(text), None, fixed, kinds())
    table = SgeOptions.forwarding
    terms = CeTerms(
        table,
        table.with_rules(RULES),
        own_queue=options.own_queue,
        own_requests=options.own_requests,
        selects_hosts=names,
    )
    return forward(left, terms, hosts(cell, options), kinds())


def accepting_queues(cell: sge.GridEngine, flags: tuple[str, ...]) -> list[str]:
    """The queues on which Grid Engine itself would start a job with these flags."""
    queues = []
    for queue in QUEUES:
        # Lists of queues are joined, so the one of the flags is compared here.
        named = [flags[place + 1] for place, word in enumerate(flags) if word == "-q"]
        others = [word for place, word in enumerate(flags) if "-q" not in (word, flags[place - 1])]
        if named and f"{queue}@{cell.host}" not in named[0].split(","):
            continue
        answer = cell.run("qsub", "-w", "v", "-b", "n", "-C", "", "-q", queue, *others, text="#!/bin/sh\n")
        if "found suitable queue" in answer:
            queues.append(queue)
    return queues


@pytest.mark.parametrize(
    ("maximum", "names", "request_shown", "queues"),
    [
        (1500, False, "h_rt=60,si00=501", ["fast.q", "best.q"]),
        (1500, True, "h_rt=60", ["fast.q", "best.q"]),
        (3000, False, "h_rt=60", ["slow.q", "fast.q", "best.q", "plain.q"]),
    ],
)
def test_the_conditional_of_the_document_reaches_exactly_the_valid_queues(
    cell: sge.GridEngine, maximum: int, names: bool, request_shown: str, queues: list[str]
) -> None:
    options = SgeOptions(memory_complex="")
    forwarding = forwarded(cell, DOCUMENT, maximum, options, names=names)
    assert forwarding.unmapped is None
    assert accepting_queues(cell, forwarding.flags) == queues
    batch = batch_of(cell, options)
    stamp = f"pilotage-{maximum}-{names}"
    script = "#!/bin/sh\nexec sleep 100\n"
    receipt = batch.submit(BatchSubmission(stamp, 5, Shape(1, 0, 60.0), script, flags=forwarding.flags))
    try:
        shown = dict(
            line.split(":", 1) for line in cell.run("qstat", "-j", receipt.array).splitlines() if ":" in line
        )
        assert shown["hard resource_list"].strip() == request_shown
        if names:
            instances = shown["hard_queue_list"].strip().split(",")
            assert sorted(instances) == sorted(f"{queue}@{cell.host}" for queue in queues)
        batch.release([stamp])

        def running_queues() -> set[str]:
            listed = cell.run("qstat", "-s", "r").split()
            return {word.split("@")[0] for word in listed if "@" in word}

        cell.wait_until(lambda: len(running_queues()) == len(queues), "jobs do not run in all valid queues")
        # Each queue has one slot, so the other tasks wait rather than use another queue.
        assert running_queues() == set(queues)
    finally:
        batch.cancel([stamp])
        cell.wait_until(lambda: not cell.run("qstat", "-u", "*"), "jobs do not end")


def test_a_short_queue_gets_no_submission(cell: sge.GridEngine) -> None:
    assert forwarded(cell, DOCUMENT, 500, SgeOptions()).reason == CANNOT_BE_TRUE


def test_a_size_of_hosts_is_requested_and_not_consumed(cell: sge.GridEngine) -> None:
    [*_, known] = [host.attributes["GlueHostMainMemoryRAMSize"] for host in hosts(cell, SgeOptions())]
    assert isinstance(known, int)
    text = f"other.GlueHostMainMemoryRAMSize > {known // 2}"
    forwarding = forwarded(cell, text, None, SgeOptions())
    assert forwarding.flags == ("-l", f"mem_total={known // 2 + 1}M")
    assert accepting_queues(cell, forwarding.flags) == list(QUEUES)
    assert accepting_queues(cell, ("-l", f"mem_total={known * 2}M")) == []


def test_a_complex_that_is_true_or_false(cell: sge.GridEngine) -> None:
    cell.change("-Mc", cell.run("qconf", "-sc") + "ssd ssd BOOL == YES NO FALSE 0\n")
    try:
        cell.replace_queue("fast.q", complex_values="si00=600,ssd=TRUE")
        cell.replace_queue("slow.q", complex_values="si00=400,ssd=FALSE")
        known = batch_of(cell, SgeOptions()).information().host_classes
        assert sorted(str(host.attributes.get("ssd")) for host in known) == ["False", "None", "None", "True"]
        terms = CeTerms(SgeOptions.forwarding, SgeOptions.forwarding.with_rules({"ssd": "complex ssd =="}))
        for text, queue in (("other.ssd", "fast.q"), ("!other.ssd", "slow.q")):
            forwarding = forward(parse_expression(text), terms, known, kinds())
            assert forwarding.unmapped is None
            assert accepting_queues(cell, forwarding.flags) == [queue]
    finally:
        cell.replace_queue("fast.q", **QUEUES["fast.q"])
        cell.replace_queue("slow.q", **QUEUES["slow.q"])


def test_a_request_of_the_policy_is_not_replaced(cell: sge.GridEngine) -> None:
    """Of two requests for one complex Grid Engine takes the last."""
    options = SgeOptions(resources="si00=700")
    forwarding = forwarded(cell, f"other.{SI00} > 500", None, options)
    assert (forwarding.flags, forwarding.unmapped is None) == ((), False)


def test_names_of_hosts_stay_within_the_queues_of_the_policy(cell: sge.GridEngine) -> None:
    options = SgeOptions(queue="fast.q", memory_complex="")
    forwarding = forwarded(cell, f"other.{SI00} > 500", None, options, names=True)
    batch = batch_of(cell, options)
    receipt = batch.submit(BatchSubmission("pilotage-n", 1, Shape(1), "#!/bin/sh\n", flags=forwarding.flags))
    try:
        assert forwarding.flags == ("-q", f"fast.q@{cell.host}")
        shown = cell.run("qstat", "-j", receipt.array).splitlines()
        assert [line.split()[1] for line in shown if line.startswith("hard_queue_list")] == [
            f"fast.q@{cell.host}"
        ]
    finally:
        batch.cancel(["pilotage-n"])


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_strings_of_jobs_never_reach_grid_engine(cell: sge.GridEngine, text: str) -> None:
    requirement = f"other.{SI00} > 500 && other.Software == {quote(text)}"
    forwarding = forwarded(cell, requirement, None, SgeOptions())
    assert forwarding.flags == ("-l", "si00=501")
    assert forwarding.unmapped is not None
    stamp = f"pilotage-h{HOSTILE.index(text)}"
    properties = {"unmapped": unparse(forwarding.unmapped)}
    batch = batch_of(cell, SgeOptions(memory_complex=""))
    batch.submit(BatchSubmission(stamp, 1, Shape(1), "#!/bin/sh\n", properties, flags=forwarding.flags))
    try:
        [read] = batch.properties([stamp]).values()
        assert read["unmapped"] == properties["unmapped"]
    finally:
        batch.cancel([stamp])


def test_rules_and_hosts_that_the_cell_does_not_have_are_named(cell: sge.GridEngine) -> None:
    table = SgeOptions.forwarding
    batch = batch_of(cell, SgeOptions())
    assert batch.check_terms(table.with_rules(RULES), [cell.host, f"fast.q@{cell.host}"]) == []
    wrong = {"X": "complex si0 <=", "Y": "complex si00 >=", "Z": "complex slots <="}
    texts = batch.check_terms(table.with_rules(wrong), ["n1"])
    assert texts == [
        "forward.X: the cell has no complex si0; did you mean si00?",
        "forward.Y: the complex si00 has the relation <=, not >=",
        "forward.Z: the complex slots is a consumable: each pilot would take a part of it",
        "hosts: the batch system has no host n1",
    ]
