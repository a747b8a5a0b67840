"""One unit of memory, MB of 2^20 bytes, from the description over the bucket to the node."""

from __future__ import annotations

import pytest

from pilotage.core import policy as policies
from pilotage.core.jobs.parsers import from_yaml
from pilotage.core.policy import Matching
from pilotage.core.queues.identity import size_bucket
from pilotage.services.policy.apply import apply_policy
from tests.unit.services.bench import POLICY, Bench

DECIMAL = "[matching]\nmemory_buckets = [512, 1000, 2000, 3000, 4000, 16000, 1024000]\n"


@pytest.mark.parametrize(
    ("asked", "node"), [("2 GB", 2048), ("512 MB", 512), ("4GiB", 4096), ("64 GB", 65536), ("1 TB", 1048576)]
)
def test_a_job_runs_on_a_node_of_just_its_size(bench: Bench, asked: str, node: int) -> None:
    memory = from_yaml(f"executable: a\nmemory: {asked}").description.memory
    assert memory == node
    [job] = bench.submit(memory=memory)
    pilot = bench.pilot()
    assert pilot.take(memory=node - 1) == []
    [offer] = pilot.take(memory=node)
    assert (offer.job, offer.payload.memory) == (job, node)


def test_the_default_buckets_are_sizes_of_machines() -> None:
    buckets = Matching().memory_buckets
    assert all(
        bucket.bit_count() == 1 or (bucket % 3 == 0 and (bucket // 3).bit_count() == 1) for bucket in buckets
    )
    for gigabytes in (1, 2, 3, 4, 6, 8, 16, 64, 128, 1024):
        assert size_bucket(gigabytes * 1024, buckets) == gigabytes * 1024


def test_jobs_that_wait_in_buckets_of_before_start(bench: Bench) -> None:
    def apply(text: str) -> None:
        policy = policies.parse(text)
        bench.do(lambda tx: apply_policy(bench.pool, tx, policy, text, by="alice", reason="", now=bench.now))

    apply(POLICY + DECIMAL)
    [before] = bench.submit(memory=2048)
    apply(POLICY)
    [after] = bench.submit(memory=2048)
    bench.close()
    bench.open()
    pilot = bench.pilot()
    [offer] = pilot.take(memory=2048)
    assert offer.job == after
    pilot.confirm(offer)
    pilot.finish(offer)
    [offer] = pilot.take(memory=3000)
    assert offer.job == before


def test_buckets_of_a_policy_stay_as_they_are_written() -> None:
    assert policies.parse(POLICY + DECIMAL).matching.memory_buckets[:4] == (512, 1000, 2000, 3000)
