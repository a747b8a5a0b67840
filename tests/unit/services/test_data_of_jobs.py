"""Jobs of requests: the order that a pilot gets, and the registration of its outputs with the finish."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilotage.core.datasets.facts import BlockEntry, FileEntry, Replica
from pilotage.core.errors import Forbidden
from pilotage.core.jobs.description import JobDescription
from pilotage.core.policy import parse
from pilotage.core.requests.json_format import specification_to_text
from pilotage.core.requests.specification import Merge, Output, Program, Specification, Step, StepSplitting
from pilotage.core.requests.states import RequestState
from pilotage.core.splitting.mask import FileRange, LumiRange, Mask
from pilotage.services.catalogue import registration
from pilotage.services.catalogue.locations import ReplicaChange, change_replicas
from pilotage.services.catalogue.outputs import WrittenFile, close_output, create_output, register_outputs
from pilotage.services.jobs.data_orders import folder_of
from pilotage.services.jobs.storage_access import access_of
from pilotage.services.jobs.stored_files import merged_lumis
from pilotage.services.policy.apply import apply_policy
from pilotage.services.submission.accept import identity_of
from pilotage.services.submission.of_requests import RequestJobs, submit_element_jobs
from pilotage.services.workqueue.cleanup import Cleanup, cleanup_of
from pilotage.store.tables import datasets, requests
from pilotage.store.tables.requests import RequestRow, StepRow
from pilotage.store.tables.selections import Viewer
from pilotage.wire.data import DataOrder, StoragePlace, StoredFile
from pilotage.wire.pilot import Finish, OfferedJob
from tests.unit.services.bench import POLICY, RETRY_DELAY, Bench, Paper, finished

ALICE = Viewer("alice")
PLACES = """
[sites.there]
storage = ["/pool/a", "/pool/b"]
[ces.there]
site = "there"
owners = "any"
[sites.far]
storage = ["results", "tape"]
[ces.far]
site = "far"
owners = "any"
[storage.results]
type = "s3"
[storage.results.s3]
endpoint = "https://s3.example.org"
bucket = "data"
[storage.tape]
type = "command"
sites = ["there", "far"]
[storage.tape.command]
url = "root://tape.example.org//tape"
put = "xrdcp {file} {url}"
get = "xrdcp {url} {file}"
"""
S3, TAPE = "s3://s3.example.org/data", "root://tape.example.org//tape"
FILES = tuple(
    FileEntry(
        f"f{number}", size=100, events=10, checksum=f"adler32:{number:08x}", lumis=((1, number, number),)
    )
    for number in range(3)
)


@dataclass
class Rows:
    """A request with a step and its merge, and the files that it reads."""

    bench: Bench
    request: int
    files: list[int]
    unmerged: int

    def make(self, mask: Mask, *, step: int = 0, type_: str = "Processing") -> int:
        """Make an element job of a mask, and its job in the pool; returns the job."""
        bench, connection = self.bench, self.bench.connection
        description = JobDescription(executable="analyse", job_type=type_)
        identity = identity_of(description, "alice", "physics", bench.pool.policy)

        def insert(tx: Any) -> int:
            element = connection.execute(
                "INSERT INTO elements (request_id, step, digest, state, jobs, location_set, created, changed)"
                " VALUES (?, ?, ?, 'Running', 1, 0, 0.0, 0.0) RETURNING id",
                (self.request, step, mask.digest),
            ).fetchone()[0]
            element_job = connection.execute(
                "INSERT INTO element_jobs (element_id, element_epoch, digest, mask, request_id, step, state,"
                " location_set, made) VALUES (?, 1, ?, ?, ?, ?, 'released', 0, 0.0) RETURNING id",
                (element, mask.digest, mask.text, self.request, step),
            ).fetchone()[0]
            batch = RequestJobs.of(self.request, "alice", "physics", description, (), identity)
            return submit_element_jobs(bench.pool, tx, batch, [element_job], bench.now)

        return bench.do(insert)

    def registered(self) -> list[tuple[str, int]]:
        rows = self.bench.connection.execute(
            "SELECT name, events FROM files WHERE dataset_id = ? ORDER BY name", (self.unmerged,)
        )
        return [(row[0], row[1]) for row in rows]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(tmp_path, POLICY.replace("[sites.here]", "[sites.here]" + PLACES, 1), store=request.param)
    bench.set("server", home_storage="/home/storage")
    yield bench
    bench.check()
    bench.end()


@pytest.fixture
def rows(bench: Bench) -> Rows:
    def insert(tx: Any) -> Rows:
        connection = tx.connection
        registration.create(tx, "raw", owner="alice", group="physics", changer=ALICE, now=1.0)
        block = BlockEntry("b", FILES, (Replica("here", "/data"), Replica("there", "root://there//store")))
        registration.add_block(tx, "raw", block, changer=ALICE, complete=True, now=1.0)
        raw = datasets.by_name(connection, "raw")
        assert raw is not None
        program = Program(JobDescription(executable="analyse"))
        step = Step(
            "analyse",
            program,
            StepSplitting("FileBased"),
            input=("raw",),
            merge=Merge(cleanup=True),
            output=Output(("*.csv",), max_size=3000),
        )
        text = specification_to_text(Specification("r", (step,)))
        row = RequestRow(
            *(0, "r", "alice", "physics", 8000, "home", "", RequestState.NEW, text, ("*",), ()),
            *(False, False, None, 1.0, 1.0),
        )
        stored = requests.insert(connection, row)
        unmerged, merged = (
            create_output(tx, name, owner="alice", group="physics", request=stored.id, step=position, now=1.0)
            for position, name in enumerate((f"r-{stored.id}/analyse/unmerged", f"r-{stored.id}/analyse"))
        )
        assert unmerged is not None
        assert merged is not None
        first = StepRow(
            stored.id, 0, "analyse", "Processing", "Block", "{}", raw.id, None, (), (), unmerged.id
        )
        merge = replace(first, position=1, name="analyse.merge", type="Merge", output_dataset=merged.id)
        merge = replace(merge, input_dataset=unmerged.id, after=0)
        cleanup = replace(merge, position=2, name="analyse.cleanup", type="Cleanup", after=1)
        requests.insert_steps(connection, [first, merge, replace(cleanup, output_dataset=None)])
        named = datasets.files_named(connection, raw.id, [file.name for file in FILES])
        return Rows(bench, stored.id, [named[file.name].id for file in FILES], unmerged.id)

    return bench.do(insert)


def take(pilot: Paper) -> tuple[OfferedJob, DataOrder]:
    [offer] = pilot.take()
    assert offer.payload.data is not None
    return offer, offer.payload.data


def stored(job: int, file: str = "x.csv", **fields: Any) -> StoredFile:
    facts = {
        "name": f"1/{job}-1/{file}",
        "pattern": "*.csv",
        "place": "/home/storage",
        "prefix": "/home/storage/r-1/analyse/unmerged",
        "size": 5,
        "checksum": "adler32:00000009",
        "events": 25,
        "lumis": [[1, 0, 2]],
        **fields,
    }
    return StoredFile(**facts)


def test_a_pilot_learns_the_paths_at_its_site_and_the_part_to_read(bench: Bench, rows: Rows) -> None:
    first, second, third = rows.files
    lumis = (LumiRange(1, 2, 2),)
    mask = Mask((FileRange(first), FileRange(second, 3, 5), FileRange(third, 0, -1, lumis)), events=25)
    for ce, prefix, places in (
        ("local", "/data", ["/home/storage"]),
        ("there", "root://there//store", ["/pool/a", "/pool/b"]),
    ):
        job = rows.make(mask if ce == "local" else replace(mask, events=24))
        offer, order = take(bench.pilot(ce))
        assert offer.job == job
        assert [file.path for file in order.files] == [f"{prefix}/{file.name}" for file in FILES]
        assert [(file.first_event, file.event_count) for file in order.files] == [(0, 10), (3, 5), (0, 10)]
        assert [file.lumis for file in order.files] == [[[1, 0, 0]], [], [[1, 2, 2]]]
        assert (order.files[0].size, order.files[1].checksum) == (100, "adler32:00000001")
        assert order.places == [StoragePlace(path, path) for path in places]
        assert (order.events, order.outputs, order.action) == (25 if ce == "local" else 24, ["*.csv"], "")
        assert order.max_output == 3000, "of the step, as the policy allows more"
        assert order.dataset == f"r-{rows.request}/analyse/unmerged" == order.folder


def test_a_generator_gets_its_events_and_a_seed_of_its_own(bench: Bench, rows: Rows) -> None:
    pilot, seeds = bench.pilot(processors=2), set()
    for number in range(2):
        rows.make(Mask(first_event=1 + 50 * number, events=50, first_lumi=1 + number, lumis=1))
        offer, order = take(pilot)
        assert (order.first_event, order.events, order.first_lumi, order.lumis) == (
            *(1 + 50 * number, 50),
            *(1 + number, 1),
        )
        seeds.add(order.seed)
        pilot.finish(offer, files=[])
    assert len(seeds) == 2
    assert 0 not in seeds


def test_a_merge_is_the_pilots_own_program(bench: Bench, rows: Rows) -> None:
    rows.make(Mask((FileRange(rows.files[0]),), events=10), step=1, type_="Merge")
    _, order = take(bench.pilot())
    assert (order.action, order.type, order.step) == ("concatenate", "Merge", "analyse.merge")
    assert order.max_output == bench.pool.policy.requests.max_output_size == 20_000_000_000
    assert order.dataset == f"r-{rows.request}/analyse"


def test_a_cleanup_removes_the_pieces_and_their_replica(bench: Bench, rows: Rows) -> None:
    piece = WrittenFile(
        rows.unmerged, FileEntry("7/9-1/x.csv", 5, 1), Replica("here", "/home/storage/r-1/analyse/unmerged")
    )

    def written(tx: Any) -> int:
        register_outputs(tx, 77, [piece], 1.0)
        close_output(tx, rows.unmerged, 1.0)
        return datasets.files_named(tx.connection, rows.unmerged, ["7/9-1/x.csv"])["7/9-1/x.csv"].id

    file = bench.do(written)
    rows.make(Mask((FileRange(file),), events=1), step=2, type_="Cleanup")
    pilot = bench.pilot()
    offer, order = take(pilot)
    assert (order.action, order.type, order.sweep, order.dataset) == ("remove", "Cleanup", ["7"], "")
    assert order.folder == f"r-{rows.request}/analyse/unmerged"
    assert [file.path for file in order.files] == ["/home/storage/r-1/analyse/unmerged/7/9-1/x.csv"]
    count = "SELECT count(*) FROM replicas WHERE prefix LIKE '/home/storage%'"
    assert bench.connection.execute(count).fetchone()[0] == 1
    pilot.finish(offer, files=[])
    assert bench.state(offer.job) == "Done"
    assert bench.connection.execute(count).fetchone()[0] == 0


def test_a_pilot_learns_the_places_that_are_no_folders(bench: Bench, rows: Rows) -> None:
    rows.make(Mask((FileRange(rows.files[0]),), events=10))
    _, order = take(bench.pilot("far"))
    results, tape = order.places
    assert (results.name, results.path, results.type, results.patience) == ("results", S3, "s3", 600)
    assert (tape.name, tape.path, tape.type, tape.timeout) == ("tape", TAPE, "command", 3600)
    assert (tape.put, tape.get) == (["xrdcp", "{file}", "{url}"], ["xrdcp", "{url}", "{file}"])
    assert order.sources == []


@pytest.mark.parametrize(
    ("address", "sites"), [(S3, ["*"]), (TAPE, ["far", "there"])], ids=["every site", "named sites"]
)
def test_outputs_there_are_read_by_the_sites_of_the_place(
    bench: Bench, rows: Rows, address: str, sites: list[str]
) -> None:
    prefix, pilots = f"{address}/r-1/analyse/unmerged", [bench.pilot("far"), bench.pilot("far")]
    for number, pilot in enumerate(pilots):
        rows.make(Mask((FileRange(rows.files[number]),), events=10))
        offer, _ = take(pilot)
        name = f"{offer.job}/{offer.job}-1-1764133812/x.csv"
        file = stored(offer.job, name=name.replace(f"{offer.job}/", f"{number + 1}/", 1), prefix=prefix)
        assert pilot.finish(offer, files=[file]) == "accepted"
        assert bench.state(offer.job) == "Done", bench.job(offer.job)["reason"]
    replicas = bench.connection.execute(
        "SELECT site, prefix FROM replicas WHERE prefix = ? ORDER BY site", (prefix,)
    ).fetchall()
    assert [tuple(row) for row in replicas] == [(site, prefix) for site in sites], "both are in one block"
    file = bench.connection.execute(
        "SELECT id FROM files WHERE dataset_id = ? ORDER BY id", (rows.unmerged,)
    ).fetchone()[0]
    rows.make(Mask((FileRange(file),), events=1))
    _, order = take(bench.pilot("there"))
    assert order.files[0].path.startswith(f"{prefix}/1/")
    assert [place.path for place in order.sources] == [address]


def test_a_cleanup_forgets_the_replicas_of_all_sites_at_one_address(bench: Bench, rows: Rows) -> None:
    place = Replica("far", f"{TAPE}/r-1/analyse/unmerged")
    piece = WrittenFile(rows.unmerged, FileEntry("7/9-1/x.csv", 5, 1), place, ("there",))

    def written(tx: Any) -> int:
        register_outputs(tx, 77, [piece], 1.0)
        close_output(tx, rows.unmerged, 1.0)
        return datasets.files_named(tx.connection, rows.unmerged, ["7/9-1/x.csv"])["7/9-1/x.csv"].id

    file = bench.do(written)
    job = rows.make(Mask((FileRange(file),), events=1), step=2, type_="Cleanup")
    pilot = bench.pilot("far")
    offer, _ = take(pilot)
    count = "SELECT count(*) FROM replicas WHERE prefix LIKE 'root://tape%'"
    assert bench.connection.execute(count).fetchone()[0] == 2
    element_job = bench.connection.execute("SELECT max(id) FROM element_jobs").fetchone()[0]
    access = access_of(bench.connection, element_job, job, 1, "far")
    assert access is not None
    folder = f"{TAPE}/r-1/analyse/unmerged"
    for operation, url in (
        ("remove", f"{folder}/7/9-1/x.csv"),
        ("remove", f"{folder}/7/8-2/left"),
        ("list", f"{folder}/7/"),
    ):
        assert access.place(bench.pool.policy, operation, url) == "tape"
    for operation, url in (
        ("remove", f"{folder}/8/9-1/x.csv"),
        ("list", f"{folder}/"),
        ("put", f"{folder}/7/9-1/x"),
    ):
        with pytest.raises(Forbidden):
            access.place(bench.pool.policy, operation, url)
    pilot.finish(offer, files=[])
    assert bench.connection.execute(count).fetchone()[0] == 0


def test_an_attempt_reads_its_inputs_and_writes_to_its_own_folder(bench: Bench, rows: Rows) -> None:
    job = rows.make(Mask((FileRange(rows.files[0]),), events=10))
    element_job = bench.connection.execute("SELECT max(id) FROM element_jobs").fetchone()[0]
    change = ReplicaChange(add=(Replica("far", f"{S3}/raw"),))
    block = bench.connection.execute("SELECT block_id FROM files WHERE id = ?", (rows.files[0],)).fetchone()[
        0
    ]
    bench.do(lambda tx: change_replicas(tx, [block], change, 1.0))
    access = access_of(bench.connection, element_job, job, 1, "far")
    assert access is not None
    own = f"{S3}/r-1/analyse/unmerged/1/{job}-1-1764133812"
    policy = bench.pool.policy
    for operation in ("put", "begin", "part", "complete", "abort", "remove"):
        assert access.place(policy, operation, f"{own}/x.csv") == "results"
    assert access.place(policy, "get", f"{S3}/raw/f0") == "results"
    for operation, url in (
        ("get", f"{S3}/raw/f1"),
        ("get", f"{own}/x.csv"),
        ("put", f"{S3}/raw/f0"),
        ("remove", f"{S3}/raw/f0"),
        ("list", f"{S3}/raw/"),
        ("head", f"{S3}/raw/f0"),
        ("put", f"{own}/"),
        ("put", f"{own}/../x.csv"),
        ("put", own.replace(f"/{job}-1-", f"/{job}-2-") + "/x.csv"),
        ("put", own.replace("/1/", "/2/") + "/x.csv"),
        ("put", f"{own}/x.csv".replace("unmerged", "other")),
        ("put", f"{own}/x.csv".replace(S3, "s3://elsewhere/data")),
        ("put", f"{own}/x.csv".replace(S3, "")),
    ):
        with pytest.raises(Forbidden):
            access.place(policy, operation, url)
    assert access_of(bench.connection, element_job + 1, job, 1, "far") is None


def test_a_cleanup_waits_for_the_merge_and_never_follows_a_failed_one(bench: Bench, rows: Rows) -> None:
    steps = requests.steps_of(bench.connection, rows.request)
    request = requests.by_id(bench.connection, rows.request)
    assert request is not None
    assert cleanup_of(bench.connection, request, steps, steps[2]) is Cleanup.WAITS
    merged = [steps[0], replace(steps[1], ended=True), steps[2]]
    assert cleanup_of(bench.connection, request, merged, steps[2]) is Cleanup.BEGINS
    rows.make(Mask((FileRange(rows.files[0]),), events=10), step=1, type_="Merge")
    bench.do(lambda tx: tx.connection.execute("UPDATE elements SET state = 'Failed'"))
    assert cleanup_of(bench.connection, request, merged, steps[2]) is Cleanup.NEVER


def test_a_job_of_a_user_has_no_data(bench: Bench) -> None:
    bench.submit()
    [offer] = bench.pilot().take()
    assert offer.payload.data is None


def test_outputs_are_registered_with_the_finish_and_once(bench: Bench, rows: Rows) -> None:
    rows.make(Mask((FileRange(rows.files[0]),), events=10))
    pilot = bench.pilot()
    offer, _ = take(pilot)
    files = [stored(offer.job), stored(offer.job, "y.csv", events=0)]
    for _ in range(2):  # the answer to the first was lost
        assert pilot.finish(offer, files=files) == "accepted"
        assert bench.state(offer.job) == "Done"
        assert rows.registered() == [(f"1/{offer.job}-1/x.csv", 25), (f"1/{offer.job}-1/y.csv", 0)]
    [block] = datasets.open_blocks(bench.connection, rows.unmerged)
    replica = bench.connection.execute("SELECT site, prefix FROM replicas WHERE block_id = ?", (block.id,))
    assert tuple(replica.fetchone()) == ("here", "/home/storage/r-1/analyse/unmerged")


def test_only_an_accepted_finish_registers(bench: Bench, rows: Rows) -> None:
    rows.make(Mask((FileRange(rows.files[0]),), events=10))
    old, new = bench.pilot(), bench.pilot()
    offer, _ = take(old)
    old.confirm(offer)
    bench.later(100000.0)
    bench.later(100.0)
    again, _ = take(new)
    assert (again.job, again.epoch) == (offer.job, 2)
    assert old.finish(offer, files=[stored(offer.job)]) == "superseded"
    assert rows.registered() == []
    name = f"1/{offer.job}-2/x.csv"
    assert new.finish(again, files=[stored(offer.job, name=name)]) == "accepted"
    assert rows.registered() == [(name, 25)]


def test_a_crash_within_the_finish_registers_all_or_nothing(bench: Bench, rows: Rows) -> None:
    rows.make(Mask((FileRange(rows.files[0]),), events=10))
    pilot = bench.pilot()
    offer, _ = take(pilot)
    request = pilot.request(finishes=[finished(offer, files=[stored(offer.job)])])
    bench.crash(pilot.asking(request))
    assert (bench.state(offer.job), rows.registered()) == ("Matched", [])
    assert pilot.finish(offer, files=[stored(offer.job)]) == "accepted"
    assert (bench.state(offer.job), len(rows.registered())) == ("Done", 1)


def test_a_failed_job_registers_nothing(bench: Bench, rows: Rows) -> None:
    rows.make(Mask((FileRange(rows.files[0]),), events=10))
    pilot = bench.pilot()
    offer, _ = take(pilot)
    pilot.finish(offer, exit_code=1, files=[stored(offer.job)])
    assert (bench.state(offer.job), rows.registered()) == ("Failed", [])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "1/99-1/x.csv"}, "not in the folder of this attempt"),
        ({"name": "1/1-1/../../x"}, "must be relative"),
        ({"name": "/etc/passwd"}, "must be relative"),
        ({"name": "1/1-1/./good.csv"}, "not in the folder of this attempt"),
        ({"name": "1/1-1//good.csv"}, "not in the folder of this attempt"),
        ({"name": "2/1-1/x.csv"}, "not in the folder of this attempt"),
        ({"prefix": "/etc"}, "is not the folder of"),
        ({"prefix": ""}, "is not the folder of"),
        ({"prefix": "/home/storage"}, "is not the folder of"),
        ({"prefix": "/home/storage/r-1/analyse"}, "is not the folder of"),
        ({"prefix": "/home/storage/r-1/analyse/unmerged/"}, "is not the folder of"),
        ({"prefix": "/home/storage/other/r-1/analyse/unmerged"}, "is not the folder of"),
        ({"prefix": "/home/storage/../r-1/analyse/unmerged"}, "is not the folder of"),
        ({"prefix": "/home/bob/r-1/analyse/unmerged"}, "is not the folder of"),
        ({"prefix": "/pool/a/r-1/analyse/unmerged"}, "is not the folder of"),
        ({"prefix": "root://x//home/storage/r-1/analyse/unmerged"}, "is not the folder of"),
        ({"checksum": "crc:1"}, "must be ALGORITHM:HEX"),
        ({"lumis": [[1, 5, 2]]}, "lumis"),
    ],
)
def test_files_that_are_not_its_own_fail_the_job_with_the_reason(
    bench: Bench, rows: Rows, fields: dict[str, Any], words: str
) -> None:
    rows.make(Mask((FileRange(rows.files[0]),), events=10))
    pilot = bench.pilot()
    offer, _ = take(pilot)
    assert offer.job == 1
    pilot.finish(offer, files=[stored(offer.job, "good.csv"), stored(offer.job, **fields)])
    assert bench.state(offer.job) == "Failed"
    assert words in bench.job(offer.job)["reason"]
    assert rows.registered() == []


def change_storage(bench: Bench, old: str, new: str) -> None:
    text = bench.policy_text.replace(old, new)
    assert text != bench.policy_text
    bench.policy_text = text
    bench.do(lambda tx: apply_policy(bench.pool, tx, parse(text), text, by="a", reason="", now=bench.now))


def outcome(bench: Bench, pilot: Paper, offer: OfferedJob, prefix: str) -> str:
    pilot.finish(offer, files=[stored(offer.job, prefix=prefix, name=f"{offer.job}/{offer.job}-1/x.csv")])
    return str(bench.state(offer.job))


def test_outputs_at_a_place_that_the_policy_has_lost_since_are_registered(bench: Bench, rows: Rows) -> None:
    """Such files are stored already; the job must not fail by a change of the policy."""
    for number in range(3):
        rows.make(Mask((FileRange(rows.files[number]),), events=10))
    pilots = [bench.pilot(ce="there") for _ in range(3)]
    (first, order), (second, _) = take(pilots[0]), take(pilots[1])
    assert [place.path for place in order.places] == ["/pool/a", "/pool/b"]
    change_storage(bench, '["/pool/a", "/pool/b"]', '["/pool/c"]')
    third, order = take(pilots[2])
    assert [place.path for place in order.places] == ["/pool/c"]
    folder = "r-1/analyse/unmerged"
    assert outcome(bench, pilots[0], first, f"/pool/b/{folder}") == "Done"
    # Another server, or this one after a restart, knows them too.
    bench.close()
    bench.open()
    assert outcome(bench, pilots[1], second, f"/pool/a/{folder}") == "Done"
    assert outcome(bench, pilots[2], third, f"/pool/d/{folder}") == "Failed"


def test_a_request_that_chooses_a_place_has_its_outputs_there_only(bench: Bench, rows: Rows) -> None:
    sql = "SELECT specification FROM requests WHERE id = ?"
    text = bench.connection.execute(sql, (rows.request,)).fetchone()[0]
    document = json.loads(text)
    document["steps"][0]["output"]["places"] = ["/pool/b"]
    change = "UPDATE requests SET specification = ? WHERE id = ?"
    bench.do(lambda tx: tx.connection.execute(change, (json.dumps(document), rows.request)))
    other = bench.pilot(ce="there")
    for number in range(2):
        rows.make(Mask((FileRange(rows.files[number]),), events=10))
    pilot = bench.pilot(ce="there")
    (first, order), (second, _) = take(pilot), take(other)
    assert [place.path for place in order.places] == ["/pool/b"]
    assert outcome(bench, pilot, first, "/pool/a/r-1/analyse/unmerged") == "Failed"
    assert outcome(bench, other, second, "/pool/b/r-1/analyse/unmerged") == "Done"


def test_a_name_that_is_taken_fails_the_job_and_leaves_the_catalogue_alone(bench: Bench, rows: Rows) -> None:
    rows.make(Mask((FileRange(rows.files[0]),), events=10))
    pilot = bench.pilot()
    offer, _ = take(pilot)
    other = FileEntry(f"1/{offer.job}-1/x.csv", 1, 1)
    bench.do(lambda tx: datasets.insert_files(tx.connection, rows.unmerged, [(1, other, 77)], 1.0))
    pilot.finish(offer, files=[stored(offer.job), stored(offer.job, "y.csv")])
    assert bench.state(offer.job) == "Failed"
    assert "has a file 1/1-1/x.csv already" in bench.job(offer.job)["reason"]
    assert rows.registered() == [("1/1-1/x.csv", 1)]


def test_orders_of_many_jobs_cost_three_statements(bench: Bench, rows: Rows) -> None:
    if bench.database:
        pytest.skip("counted on SQLite")
    for number in range(8):
        rows.make(Mask((FileRange(rows.files[number % 3], number),), events=1))
    statements: list[str] = []
    pilot = bench.pilot(processors=8)
    bench.connection.set_trace_callback(statements.append)  # type: ignore[attr-defined]
    offers = pilot.take(count=8, processors=8)
    bench.connection.set_trace_callback(None)  # type: ignore[attr-defined]
    assert len(offers) == 8
    assert all(offer.payload.data and offer.payload.data.files[0].path for offer in offers)
    reads = [
        text
        for text in statements
        if "element_jobs" in text or "FROM requests" in text or "FROM files" in text
    ]
    assert len(reads) == 3


def test_the_policy_limits_the_blocks_of_outputs(bench: Bench, rows: Rows) -> None:
    policy = bench.pool.policy
    requests_table = msgspec.structs.replace(policy.requests, output_block_files=1)
    bench.set(policy=msgspec.structs.replace(policy, requests=requests_table))
    pilot = bench.pilot()
    for number in range(2):
        job = rows.make(Mask((FileRange(rows.files[number]),), events=10))
        offer, order = take(pilot)
        pilot.finish(offer, files=[stored(job, name=f"{order.element}/{job}-1/x.csv")])
    sql = "SELECT name FROM blocks WHERE dataset_id = ? ORDER BY id"
    assert [row[0] for row in bench.connection.execute(sql, (rows.unmerged,))] == ["here", "here#2"]


# --- logs


@pytest.fixture
def logs(bench: Bench, rows: Rows) -> int:
    """The log data set of the first step."""

    def insert(tx: Any) -> int:
        name = f"r-{rows.request}/logs/unmerged"
        dataset = create_output(
            tx, name, owner="alice", group="physics", request=rows.request, step=0, now=1.0
        )
        assert dataset is not None
        sql = "UPDATE request_steps SET log_dataset = ? WHERE request_id = ? AND position = 0"
        tx.connection.execute(sql, (dataset.id, rows.request))
        return dataset.id

    return bench.do(insert)


def log_file(offer: OfferedJob, order: DataOrder, **fields: Any) -> StoredFile:
    name = f"{order.element}/{offer.job}-{offer.epoch}/{order.log_name}"
    facts = {"pattern": order.log_name, "prefix": f"/home/storage/{order.log_folder}", "name": name}
    return stored(offer.job, **{**facts, "events": 0, "lumis": [], **fields})


def logged(bench: Bench, dataset: int) -> list[str]:
    sql = "SELECT name FROM files WHERE dataset_id = ? ORDER BY id"
    return [row[0] for row in bench.connection.execute(sql, (dataset,))]


def test_logs_of_failed_tries_and_of_the_good_one_are_registered(bench: Bench, rows: Rows, logs: int) -> None:
    job = rows.make(Mask((FileRange(rows.files[0]),), events=10))
    pilot = bench.pilot()
    offer, order = take(pilot)
    assert (order.log_name, order.log_folder) == ("logs.tar.gz", f"r-{rows.request}/logs/unmerged")
    assert order.log_places == [StoragePlace("/home/storage", "/home/storage")]
    pilot.finish(offer, failure="node", message="disk full", files=[], logs=log_file(offer, order))
    assert bench.state(job) == "Rescheduled"
    bench.later(RETRY_DELAY)
    again = bench.pilot()
    offer, order = take(again)
    output = stored(job, name=f"{order.element}/{job}-{offer.epoch}/x.csv")
    again.finish(offer, files=[output], logs=log_file(offer, order))
    assert bench.state(job) == "Done"
    assert logged(bench, logs) == [f"{order.element}/{job}-{epoch}/logs.tar.gz" for epoch in (1, offer.epoch)]
    assert [name for name, _ in rows.registered()] == [f"{order.element}/{job}-{offer.epoch}/x.csv"]


def test_foreign_logs_are_not_registered_and_change_no_result(bench: Bench, rows: Rows, logs: int) -> None:
    job = rows.make(Mask((FileRange(rows.files[0]),), events=10))
    pilot = bench.pilot()
    offer, order = take(pilot)
    pilot.finish(
        offer, files=[], logs=log_file(offer, order, name=f"{order.element}/{job + 1}-1/logs.tar.gz")
    )
    assert (bench.state(job), logged(bench, logs)) == ("Done", [])


def test_logs_outside_of_the_places_are_not_registered(bench: Bench, rows: Rows, logs: int) -> None:
    job = rows.make(Mask((FileRange(rows.files[0]),), events=10))
    pilot = bench.pilot()
    offer, order = take(pilot)
    elsewhere = log_file(offer, order, prefix=f"/home/bob/{order.log_folder}")
    pilot.finish(offer, files=[], logs=elsewhere)
    assert (bench.state(job), logged(bench, logs)) == ("Done", [])


def test_logs_of_jobs_whose_step_keeps_none_are_ignored(bench: Bench, rows: Rows) -> None:
    job = rows.make(Mask((FileRange(rows.files[0]),), events=10))
    pilot = bench.pilot()
    offer, order = take(pilot)
    assert (order.log_name, order.log_places) == ("", [])
    pilot.finish(offer, files=[], logs=log_file(offer, order))
    assert bench.state(job) == "Done"
    assert bench.connection.execute("SELECT count(*) FROM files WHERE name LIKE '%logs%'").fetchone()[0] == 0


def test_lumis_of_several_inputs_are_joined() -> None:
    assert merged_lumis([[1, 5, 6], [1, 1, 4], [2, 1, 1], [1, 6, 9]]) == [[1, 1, 9], [2, 1, 1]]


@pytest.mark.parametrize(
    ("dataset", "folder"),
    [("/a/b", "a/b"), ("a/../../etc", "a/__/__/etc"), ("./x", "_/x"), ("a//b/", "a/b"), ("a..b", "a..b")],
)
def test_the_folder_of_a_data_set_stays_in_its_place(dataset: str, folder: str) -> None:
    assert folder_of(dataset) == folder


def test_the_finish_is_still_plain_json() -> None:
    assert json.loads(json.dumps(vars(Finish(1, 1))))["files"] == []
