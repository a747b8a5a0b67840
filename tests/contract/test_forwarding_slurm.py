"""The flags of a forwarded requirement accept exactly the valid nodes of a real Slurm, and the job runs there."""

from __future__ import annotations

import getpass
import subprocess
from collections.abc import Iterator

import pytest

from pilotage.core.classads import ClassAd, Literal, parse_expression, unparse
from pilotage.core.classads.partial import Kind, residual
from pilotage.core.forwarding.forward import CANNOT_BE_TRUE, CeTerms, Forwarding, forward
from pilotage.core.glue.information import HostClass
from pilotage.core.policy.batch_systems.slurm import SlurmOptions
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.runner import LocalRunner
from pilotage.outside.batch.slurm.adapter import SlurmBatch
from tests import slurm
from tests.deadlines import PATIENCE
from tests.unit.core.forwarding.batch_systems import slurm_accepts
from tests.unit.core.forwarding.test_forward import HOSTILE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * PATIENCE)]

SI00 = "GlueHostBenchmarkSI00"
DOCUMENT = (
    "other.GlueHostBenchmarkSI00 > 500"
    " ? other.GlueCEPolicyMaxCPUTime > 1000 : other.GlueCEPolicyMaxCPUTime > 2000"
)
"""The conditional of "Approaches to batch system description": a short queue needs a fast host."""
FEATURES = {"n1": "si00_400,old", "n2": "si00_600,old", "n3": "si00_800,new", "n4": "new"}
HOSTS = (
    HostClass(1, {SI00: 400}, ("n1",)),
    HostClass(1, {SI00: 600}, ("n2",)),
    HostClass(1, {SI00: 800}, ("n3",)),
    HostClass(1, {}, ("n4",)),
)
RULES = {SI00: "feature si00_{}"}
KINDS = {SI00.lower(): Kind.INTEGER}


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.Cluster]:
    with slurm.cluster(nodes=4, processors=4, features=FEATURES) as made:
        yield made


def forwarded(text: str, maximum: int | None, options: SlurmOptions, *, names: bool = False) -> Forwarding:
    fixed = ClassAd(() if maximum is None else (("GlueCEPolicyMaxCPUTime", Literal(maximum)),))
    left = residual(parse_expression(text), None, fixed, KINDS)
    table = SlurmOptions.forwarding
    terms = CeTerms(table, table.with_rules(RULES), options.own_features, selects_hosts=names)
    return forward(left, terms, HOSTS, KINDS)


def accepting_nodes(cluster: slurm.Cluster, flags: tuple[str, ...]) -> list[str]:
    """The nodes on which Slurm itself would start a job with these flags."""
    nodes = []
    for node in cluster.nodes:
        command = ["sbatch", "--test-only", "--output=/dev/null", *flags, f"--nodelist={node}", "--wrap=true"]
        done = subprocess.run(command, env=cluster.environment, capture_output=True, check=False)
        if done.returncode == 0:
            nodes.append(node)
    return nodes


@pytest.mark.parametrize(
    ("maximum", "constraint", "names", "nodes"),
    [
        (1500, "si00_600|si00_800", False, ["n2", "n3"]),
        (1500, "(null)", True, ["n2", "n3"]),
        (3000, "(null)", False, ["n1", "n2", "n3", "n4"]),
    ],
)
def test_the_conditional_of_the_document_reaches_exactly_the_valid_nodes(
    cluster: slurm.Cluster, maximum: int, constraint: str, names: bool, nodes: list[str]
) -> None:
    options = SlurmOptions()
    forwarding = forwarded(DOCUMENT, maximum, options, names=names)
    assert forwarding.unmapped is None
    assert accepting_nodes(cluster, forwarding.flags) == nodes
    batch = SlurmBatch(LocalRunner(cluster.environment), getpass.getuser(), options)
    script = "#!/bin/sh\nexec sleep 100\n"
    submission = BatchSubmission(
        f"pilotage-{maximum}-{names}", 4, Shape(3, 100, 60.0), script, flags=forwarding.flags
    )
    receipt = batch.submit(submission)
    try:
        shown = cluster.run("scontrol", "show", "job", receipt.batch_ids[0]).split()
        assert f"Features={constraint}" in shown
        assert ("ExcNodeList=n[1,4]" if names else "ExcNodeList=(null)") in shown
        batch.release([submission.stamp])

        def running_nodes() -> set[str]:
            return {task.node for task in batch.list_pilots([submission.stamp]).tasks if task.node}

        cluster.wait_until(lambda: len(running_nodes()) == len(nodes), "jobs do not run on all valid nodes")
        # A node has room for one of these pilots, so the others wait rather than use another node.
        assert running_nodes() == set(nodes)
    finally:
        batch.cancel([submission.stamp])
        cluster.wait_until(lambda: not cluster.run("squeue", "-h"), "jobs do not end")


def test_a_short_queue_gets_no_submission() -> None:
    assert forwarded(DOCUMENT, 500, SlurmOptions()).reason == CANNOT_BE_TRUE


@pytest.mark.parametrize(
    ("own", "nodes"),
    [("old", ["n2"]), ("old|new", ["n2", "n3"]), ("(old|new)&old", ["n2"]), ("new&si00_800", ["n3"])],
)
def test_the_policy_and_the_requirements_hold_together(
    cluster: slurm.Cluster, own: str, nodes: list[str]
) -> None:
    options = SlurmOptions(constraint=own)
    forwarding = forwarded(DOCUMENT, 1500, options)
    stamp = "pilotage-" + own.encode().hex()
    batch = SlurmBatch(LocalRunner(cluster.environment), getpass.getuser(), options)
    receipt = batch.submit(BatchSubmission(stamp, 1, Shape(1), "#!/bin/sh\n", flags=forwarding.flags))
    try:
        [constraint] = [flag.partition("=")[2] for flag in forwarding.flags]
        assert f"Features={constraint}" in cluster.run("scontrol", "show", "job", receipt.array).split()
        assert accepting_nodes(cluster, forwarding.flags) == nodes
    finally:
        batch.cancel([stamp])


@pytest.mark.parametrize(
    "constraint",
    [
        *("old&new|si00_600", "old|new&si00_800", "(old&si00_600)|(new&si00_800)", "(old|new)&si00_800&new"),
        *("old|new&(si00_800|si00_600)", "(old|new)&(si00_800|si00_600)&(new)", "old,si00_400", "si00_400"),
    ],
)
def test_the_model_of_the_tests_reads_constraints_as_slurm_does(
    cluster: slurm.Cluster, constraint: str
) -> None:
    expected = [node for node in cluster.nodes if slurm_accepts(constraint, FEATURES[node].split(","))]
    assert accepting_nodes(cluster, (f"--constraint={constraint}",)) == expected


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_strings_of_jobs_never_reach_slurm(cluster: slurm.Cluster, text: str) -> None:
    quoted = unparse(Literal(text))
    forwarding = forwarded(f"other.{SI00} > 500 && other.GlueHostOS == {quoted}", None, SlurmOptions())
    assert forwarding.flags == ("--constraint=si00_600|si00_800",)
    assert forwarding.unmapped is not None
    stamp = f"pilotage-h{HOSTILE.index(text)}"
    properties = {"unmapped": unparse(forwarding.unmapped)}
    batch = SlurmBatch(LocalRunner(cluster.environment), getpass.getuser(), SlurmOptions())
    batch.submit(BatchSubmission(stamp, 1, Shape(1), "#!/bin/sh\n", properties, flags=forwarding.flags))
    try:
        [read] = batch.properties([stamp]).values()
        assert read["unmapped"] == properties["unmapped"]
    finally:
        batch.cancel([stamp])


def test_rules_and_hosts_that_the_cluster_does_not_have_are_named(cluster: slurm.Cluster) -> None:
    table = SlurmOptions.forwarding
    batch = SlurmBatch(LocalRunner(cluster.environment), getpass.getuser(), SlurmOptions())
    assert batch.check_terms(table.with_rules(RULES), cluster.nodes) == []
    texts = batch.check_terms(table.with_rules({SI00: "feature si_{}", "HasGpu": "feature gpu"}), ["n9"])
    assert texts == [
        f"forward.{SI00}: no node has a feature si_{{}}; features: new, old, si00_400, si00_600, si00_800",
        "forward.HasGpu: no node has a feature gpu; features: new, old, si00_400, si00_600, si00_800",
        "hosts: the batch system has no host n9",
    ]
