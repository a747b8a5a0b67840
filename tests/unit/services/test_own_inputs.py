"""Input files of single jobs: named in their rows, given to their pilots, kept as long as a chunk names them."""

from __future__ import annotations

import json

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.description import InputFile
from pilotage.core.jobs.per_job_inputs import PerJobFile, decode_file, encode_file, per_job_columns
from pilotage.services.jobs.payload import has_input
from pilotage.store.tables import listing, retention
from pilotage.store.tables import submissions as rows
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import Input
from tests.unit.services.bench import Bench

FILES = [PerJobFile(f"{n:064x}", 10 + n, n == 1) for n in range(3)]
COMMON = Input("all.txt", "copy", "f" * 64, 5)
SANDBOX = (InputFile("all.txt", "copy", "all.txt"), InputFile("in.json", "copy", "in.json"))


def uploaded(bench: Bench, *digests: str) -> None:
    def note(tx: Transaction) -> None:
        for digest in digests:
            rows.insert_upload(tx.connection, "alice", digest, 10, bench.now)

    bench.do(note)


def submitted(bench: Bench) -> list[int]:
    uploaded(bench, *(file.digest for file in FILES))
    values = [[n, encode_file(file)] for n, file in enumerate(FILES)]
    return bench.submit(names=("", "@1"), rows=values, inputs=[COMMON], input_sandbox=SANDBOX)


def test_each_job_is_given_its_own_file(bench: Bench) -> None:
    jobs = submitted(bench)
    offers = {offer.job: offer for offer in bench.pilot(processors=3).take(3, processors=3)}
    for job, file in zip(jobs, FILES, strict=True):
        assert offers[job].payload.inputs == [
            COMMON,
            Input("in.json", "copy", file.digest, file.size, file.executable),
        ]
        facts = listing.job_facts(bench.connection, job)
        assert facts is not None
        assert [other.digest for other in FILES if has_input(facts, other.digest)] == [file.digest]
        assert has_input(facts, COMMON.source)


def test_a_value_that_looks_like_a_file_opens_none(bench: Bench) -> None:
    """Only the columns of the server's own making name files."""
    uploaded(bench, FILES[0].digest)
    [job] = bench.submit(names=("", "Seed"), rows=[[encode_file(FILES[0]), f'"{FILES[0].digest}"']])
    facts = listing.job_facts(bench.connection, job)
    assert facts is not None
    assert not has_input(facts, FILES[0].digest)
    named = Input(FILES[0].digest, "copy", "e" * 64, 1)
    [other] = bench.submit(inputs=[named])
    facts = listing.job_facts(bench.connection, other)
    assert facts is not None
    assert f'"{FILES[0].digest}"' in facts.inputs
    assert not has_input(facts, FILES[0].digest)


def test_a_file_that_has_gone_refuses_the_rows(bench: Bench) -> None:
    uploaded(bench, FILES[0].digest)
    values = [[encode_file(file)] for file in FILES[:2]]
    prepared = bench.prepared(names=("@1",), rows=values, input_sandbox=SANDBOX, inputs=[COMMON])
    with pytest.raises(InvalidInput, match="was deleted"):
        bench.accept(prepared)
    assert bench.connection.execute("SELECT count(*) FROM submissions").fetchone()[0] == 0


def test_uploads_stay_while_a_chunk_names_them(bench: Bench) -> None:
    jobs = submitted(bench)
    uploaded(bench, "d" * 64)
    later = bench.now + 1000
    old = retention.expired_uploads(bench.connection, later)
    assert {"d" * 64, *(file.digest for file in FILES)} <= old
    named = retention.referenced_inputs(bench.connection, old)
    assert old - named.digests == {"d" * 64}
    digests = [FILES[0].digest, "d" * 64]
    assert bench.do(lambda tx: retention.delete_uploads(tx.connection, digests, later, 0)) == ["d" * 64]
    for offer in bench.pilot(processors=3).take(3, processors=3):
        assert offer.job in jobs


def test_many_rows_are_cut_into_chunks_that_one_transaction_may_store(bench: Bench) -> None:
    files = [PerJobFile(f"{n:064x}", 1, False) for n in range(1201)]
    uploaded(bench, *(file.digest for file in files))
    prepared = bench.prepared(
        names=("@1",), rows=[[encode_file(file)] for file in files], input_sandbox=SANDBOX
    )
    submission = bench.accept(prepared)
    sql = "SELECT count FROM submission_chunks WHERE submission_id = ? ORDER BY number"
    counts = [row[0] for row in bench.connection.execute(sql, (submission.id,))]
    assert counts == [500, 500, 201]
    assert bench.connection.execute("SELECT count(*) FROM chunk_files").fetchone()[0] == 1201


@pytest.mark.parametrize("value", ["", "x", 5, f"{'A' * 64}:1:0", f"{'a' * 64}:1", f"{'a' * 64}:-1:0", None])
def test_values_that_are_no_files(value: object) -> None:
    with pytest.raises(InvalidInput, match="is not the digest"):
        decode_file(value)


def test_columns_must_belong_to_a_file_that_is_sent(bench: Bench) -> None:
    description = bench.prepared(input_sandbox=(InputFile("u", "url", "http://x/u"), *SANDBOX)).description
    assert per_job_columns(description, ("a", "@2", "@1")) == {2: 1, 1: 2}
    for wrong in ("@0", "@3"):
        with pytest.raises(InvalidInput, match="does not refer to an uploaded file"):
            per_job_columns(description, (wrong,))
    assert json.loads(json.dumps(encode_file(FILES[1]))) == f"{FILES[1].digest}:11:1"
