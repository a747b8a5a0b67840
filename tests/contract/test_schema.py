"""Migrations and the schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from pilotage.core.errors import Conflict
from pilotage.core.ids import JobId, PilotId, SubmissionId
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.json_format import description_to_json
from pilotage.core.pilots.cost import CoreSeconds
from pilotage.core.policy import parse
from pilotage.core.queues.identity import QueueIdentity
from pilotage.store.admin.upgrade import _config, current_revision, head_revision, upgrade
from pilotage.store.engine.connection import database_time
from pilotage.store.schema import metadata
from pilotage.store.tables import (
    chunks,
    costs,
    elements,
    events,
    jobs,
    listing,
    partitions,
    pilot_submissions,
    pilots,
    resubmissions,
    submissions,
)
from pilotage.store.tables.partitions import is_partition, is_schema_object
from tests.contract.stores import STORES, Store, assert_counted, fill


def test_migrations_lead_to_the_schema(store: Store) -> None:
    with store.engine.connect() as connection:
        options = {"compare_type": True, "include_object": is_schema_object}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []
    assert current_revision(store.engine) == head_revision()


def test_migrations_write_the_tables_as_the_schema_would(store: Store, tmp_path: Path) -> None:
    """To the letter, but for the order: partial indexes and ids that are never given twice escape a comparison."""
    direct = STORES[store.name](tmp_path / "direct", False)
    metadata.create_all(direct.engine)
    read = {"sqlite": sqlite_tables, "postgresql": postgresql_catalogue}[store.name]
    made, meant = read(store.engine), read(direct.engine)
    direct.engine.dispose()
    direct.drop()
    assert made.keys() == meant.keys()
    assert len(meant) > len(metadata.tables)
    for name in meant:
        assert made[name] == meant[name], name


def sqlite_tables(engine: sa.Engine) -> dict[str, set[str]]:
    """The parts of what made each table and index."""
    sql = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'alembic%'"

    def parts(text: str) -> set[str]:
        plain = " ".join(text.split()).replace("(", ",").replace(")", ",").replace('"', "")
        return {" ".join(part.split()) for part in plain.split(",")} - {""}

    with engine.connect() as connection:
        return {name: parts(text) for name, text in connection.execute(sa.text(sql))}


def postgresql_catalogue(engine: sa.Engine) -> dict[str, set[str]]:
    """Columns with types and defaults, constraints, indexes, sequences, and by what tables are divided."""
    sql = """
        SELECT 'column ' || table_name,
          concat_ws(' ', column_name, data_type, is_nullable, column_default, collation_name)
          FROM information_schema.columns WHERE table_schema = 'public'
        UNION ALL SELECT 'index ' || tablename, indexdef FROM pg_indexes WHERE schemaname = 'public'
        UNION ALL SELECT 'constraint ' || conrelid::regclass, conname || ' ' || pg_get_constraintdef(oid)
          FROM pg_constraint WHERE connamespace = 'public'::regnamespace
        UNION ALL SELECT 'sequence ' || sequencename, concat_ws(' ', data_type, start_value, increment_by, cycle)
          FROM pg_sequences WHERE schemaname = 'public'
        UNION ALL SELECT 'division ' || partrelid::regclass, pg_get_partkeydef(partrelid) FROM pg_partitioned_table
    """
    found: dict[str, set[str]] = {}
    with engine.connect() as connection:
        for name, text in connection.execute(sa.text(sql)):
            if "alembic" not in name and not is_partition(name.partition(" ")[2]):
                found.setdefault(name, set()).add(text)
    return found


def test_upgrading_a_filled_database_again_changes_nothing(store: Store, connection: Any) -> None:
    fill(connection)
    before = [list(connection.execute(f"SELECT * FROM {table}")) for table in metadata.tables]
    assert any(before)
    upgrade(store.engine)
    assert [list(connection.execute(f"SELECT * FROM {table}")) for table in metadata.tables] == before


def test_tries_of_before_the_shares_get_an_owner_and_a_site(unmade: Store) -> None:
    upgrade(unmade.engine, "0001")
    with unmade.engine.begin() as connection:
        for sql in FILLED_0001:
            connection.execute(sa.text(sql))
    upgrade(unmade.engine)
    with unmade.engine.connect() as connection:
        sql = "SELECT job_id, owner, grp, site, cpu_power, ended, wall FROM attempts ORDER BY job_id"
        assert [tuple(row) for row in connection.execute(sa.text(sql))] == [
            (1, "alice", "physics", "here", 1.0, 60.0, 40.0),
            (2, "alice", "physics", "", 1.0, None, 0.0),
            (3, "", "", "here", 1.0, 60.0, 0.0),
        ]
        row = connection.execute(sa.text("SELECT uuid, use_as_of FROM instance")).one()
        assert tuple(row) == ("u", None)
    assert current_revision(unmade.engine) == head_revision()


def test_pilots_of_before_know_what_they_have(unmade: Store) -> None:
    upgrade(unmade.engine, "0004")
    with unmade.engine.begin() as connection:
        for sql in FILLED_0001:
            connection.execute(sa.text(sql))
        connection.execute(sa.text("UPDATE jobs SET pilot_id = 7, started = 40.0 + id"))
    upgrade(unmade.engine)
    opened = unmade.open_writer()
    assert [job.id for job in jobs.of_pilot(opened, PilotId(7))] == [1, 2]
    assert pilots.unconfirmed_since(opened) == [(7, 42.0)]
    opened.close()


def test_elements_of_before_that_were_not_split_can_be_resubmitted(unmade: Store) -> None:
    """Those of before have failed by their jobs, which they count, or were not split."""
    upgrade(unmade.engine, "0031")
    insert = (
        "INSERT INTO elements (request_id, step, digest, state, jobs, location_set, created, changed, jobs_failed)"
        " VALUES (1, 0, :digest, :state, 4, 1, 1.0, 1.0, :failed)"
    )
    with unmade.engine.begin() as connection:
        for digest, state, failed in (("a", "Failed", 2), ("b", "Failed", 0), ("c", "Done", 0)):
            connection.execute(sa.text(insert), {"digest": digest, "state": state, "failed": failed})
    upgrade(unmade.engine)
    with unmade.engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT digest, unsplit FROM elements ORDER BY digest"))
        assert [tuple(row) for row in rows] == [("a", 0), ("b", 1), ("c", 0)]


def test_holders_of_elements_of_before_may_finish_them(unmade: Store) -> None:
    """Nobody knows who had a free element, so nobody finishes it by its old epoch."""
    upgrade(unmade.engine, "0038")
    with unmade.engine.begin() as connection:
        for number, agent in ((1, 7), (2, None)):
            connection.execute(
                sa.text(
                    "INSERT INTO elements (id, request_id, step, digest, state, jobs, location_set, created, changed,"
                    " agent_id, epoch) VALUES (:id, 1, 0, :digest, 'Acquired', 1, 0, 0, 0, :agent, 3)"
                ),
                {"id": number, "digest": f"d{number}", "agent": agent},
            )
    upgrade(unmade.engine)
    opened = unmade.open_writer()
    assert [elements.by_ids(opened, [number])[number].offered_to for number in (1, 2)] == [7, None]
    opened.close()


def test_absences_of_before_settle_again(unmade: Store) -> None:
    """An absence of a released submission was one of some of its pilots; nobody knows of which."""
    upgrade(unmade.engine, "0040")
    insert = (
        "INSERT INTO pilot_submissions (stamp, ce, phase, pilots, absent_since, submitted)"
        " VALUES (:phase, 'batch', :phase, 1, 5.0, 1.0)"
    )
    with unmade.engine.begin() as connection:
        for phase in ("released", "in-doubt"):
            connection.execute(sa.text(insert), {"phase": phase})
    upgrade(unmade.engine)
    opened = unmade.open_writer()
    rows = {row.phase: row for row in pilot_submissions.live(opened, "batch")}
    assert {phase: row.absent_since for phase, row in rows.items()} == {"released": None, "in-doubt": 5.0}
    assert {(row.releases, row.wait_class, row.wait_since) for row in rows.values()} == {(0, "", None)}
    opened.close()


def test_data_with_an_address_is_known_to_be_readable_after_the_upgrade(unmade: Store) -> None:
    """Its elements follow by the duty of locations, its jobs at once."""
    upgrade(unmade.engine, "0041")
    with unmade.engine.begin() as connection:

        def run(text: str, **values: object) -> None:
            connection.execute(sa.text(text), values)

        run("INSERT INTO location_sets (id, digest, sites) VALUES (5, 'a', '[\"A\"]'), (6, 'b', '[\"B\"]')")
        for block, at, prefix in ((1, 5, "root://a//store"), (2, 6, "/data")):
            run(
                "INSERT INTO blocks (id, dataset_id, name, created, location_set) VALUES (:id, 1, :name, 0, :at)",
                id=block,
                name=f"b{block}",
                at=at,
            )
            run(
                "INSERT INTO replicas (block_id, site, prefix, known) VALUES (:id, 'A', :prefix, 0)",
                id=block,
                prefix=prefix,
            )
            run(
                "INSERT INTO element_jobs (element_id, element_epoch, digest, mask, request_id, step, state,"
                " location_set, made) VALUES (1, 1, :digest, '{}', 1, 0, 'made', :at, 0)",
                digest=f"d{block}",
                at=at,
            )
    upgrade(unmade.engine)
    opened = unmade.open_writer()
    for table in ("blocks", "element_jobs"):
        rows = opened.execute(
            f"SELECT s.sites FROM {table} t JOIN location_sets s ON s.id = t.location_set ORDER BY t.id"
        )
        assert [json.loads(row[0]) for row in rows.fetchall()] == [["://", "A"], ["B"]]
    assert [row[0] for row in opened.execute("SELECT block_id FROM moved_blocks").fetchall()] == [1]
    opened.close()


def test_resubmissions_of_before_know_their_chain(unmade: Store) -> None:
    """A clone has an origin too, and belongs to no chain."""
    upgrade(unmade.engine, "0036")
    insert = (
        "INSERT INTO requests (id, name, owner, grp, priority, state, specification, sites, created, changed,"
        " origin_id) VALUES (:id, 'r', 'alice', 'physics', 1, 'completed', :specification, '[]', 1.0, 1.0, :origin)"
    )
    chains = {1: (None, {}), 2: (1, {"resubmits": [1]}), 3: (2, {"resubmits": [1, 2]}), 4: (1, {})}
    with unmade.engine.begin() as connection:
        for number, (origin, more) in chains.items():
            text = json.dumps({"name": "r", "steps": [], **more})
            connection.execute(sa.text(insert), {"id": number, "specification": text, "origin": origin})
    upgrade(unmade.engine)
    opened = unmade.open_writer()
    assert [other.id for other in resubmissions.of_chain(opened, 1)] == [2, 3]
    assert resubmissions.of_chain(opened, 2) == []
    opened.close()


def test_policies_of_before_keep_their_rules(unmade: Store) -> None:
    """They say now what their silence meant, and "document" has its new name; their comments stay."""
    upgrade(unmade.engine, "0042")
    begin = "[groups.home]\nproperties = ['ADMINISTRATOR']\n[users.ada]\ngroups = ['home']\n"
    texts = {
        1: begin,
        2: f'{begin}[matching]  # the draw\nrule = "document"  # the default\n[director.pools.Batch]\nRank = "1"\n',
        3: f'{begin}[matching]\nrule="proportional"\n[director]\ndemand = "matched"\nPrivatePilotFraction = 1\n',
        4: f"director = {{}}\nmatching = {{ cpu_buckets = [500], rule = 'document' }}\n{begin}",
        5: f"matching.cpu_buckets = [500]\ndirector.demand = 'document'\n{begin}",
        6: "[groups",
    }
    sql = (
        "INSERT INTO policies (version, text, applied_at, applied_by, reason) VALUES (:v, :t, 1.0, 'ada', '')"
    )
    with unmade.engine.begin() as connection:
        for version, text in texts.items():
            connection.execute(sa.text(sql), {"v": version, "t": text})
    upgrade(unmade.engine)
    with unmade.engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT version, text FROM policies")).fetchall()
    stored = {version: text for version, text in rows}
    assert stored.pop(6) == "[groups"
    assert "# the draw" in stored[2]
    assert "# the default" in stored[2]
    for version, text in stored.items():
        policy = parse(text)
        rules = (policy.matching.rule, policy.director.demand, policy.director.private_pilot_fraction)
        assert rules == (("proportional", "matched", 1) if version == 3 else ("dirac", "dirac", 0.5)), version
    assert parse(stored[2]).director.pools["Batch"].rank == "1"


def test_sums_of_pilots_begin_with_their_columns(unmade: Store) -> None:
    """A pilot that was booked before has a sum of zero, and further bookings are added."""
    upgrade(unmade.engine, "0021")
    with unmade.engine.begin() as connection:
        for sql in FILLED_0001:
            connection.execute(sa.text(sql))
        connection.execute(sa.text("UPDATE pilots SET cores_from = 1.0, booked_until = 50.0"))
    upgrade(unmade.engine)
    opened = unmade.open_writer()
    [row] = listing.pilots(opened, 0, 1)
    assert (row.core_seconds, row.payload_core_seconds) == (0.0, 0.0)
    for until in (60.0, 90.0):
        opened.begin()
        costs.save_booking(opened, PilotId(row.id), until, CoreSeconds(payload=5.0, idle=2.5))
        opened.commit()
    [row] = listing.pilots(opened, 0, 1)
    assert (row.pilot_type, row.core_seconds, row.payload_core_seconds) == ("generic", 15.0, 10.0)
    assert costs.booked_until(opened, [PilotId(row.id)]) == {7: 90.0}
    opened.close()


def fill_with_jobs(
    store: Store, plain: QueueIdentity, rows: Sequence[tuple[int, str, int, JobDescription]]
) -> None:
    """Submissions of one job each: number, state of the job (empty: not created yet), jobs created, description."""
    connection = store.open_writer()
    for number, state, made, description in rows:
        connection.begin()
        submissions.get_or_insert_queue(connection, plain, 1.0)
        connection.execute(
            "INSERT INTO submissions (id, owner, grp, submitted, description, inputs, names, job_name, job_group,"
            " job_type, queue_id, first_job, count, warnings)"
            " VALUES (?, 'alice', 'physics', 5.0, ?, '[]', '[]', 'n', '', 'User', 1, ?, 1, '[]')",
            (number, json.dumps(description_to_json(description)), number),
        )
        connection.execute(
            "INSERT INTO submission_chunks (submission_id, number, digest, first_job, count, made, accepted)"
            " VALUES (?, 0, '', ?, 1, ?, 5.0)",
            (number, number, made),
        )
        if state:
            connection.execute(
                "INSERT INTO jobs (id, submission_id, queue_id, state, user_priority, submitted)"
                " VALUES (?, ?, 1, ?, 1, 5.0)",
                (number, number, state),
            )
        connection.commit()
    connection.close()


def check_queues(store: Store, expected: Mapping[int, QueueIdentity]) -> None:
    """Check the queue of each submission, and that its job waits in it."""
    connection = store.open_writer()
    queues = dict(submissions.all_queues(connection))
    of_submission = dict(connection.execute("SELECT id, queue_id FROM submissions").fetchall())
    assert {number: queues[queue] for number, queue in of_submission.items()} == expected
    of_job = dict(connection.execute("SELECT id, queue_id FROM jobs").fetchall())
    assert of_job == {number: of_submission[number] for number in of_job}
    for queue, identity in queues.items():
        assert submissions.find_queue(connection, identity) == queue, "its digest is that of new submissions"
    connection.close()


def test_jobs_with_a_wall_time_of_before_wait_in_a_queue_with_it(unmade: Store) -> None:
    upgrade(unmade.engine, "0029")
    plain = QueueIdentity("alice", "physics", tags=frozenset({"\u00fc", "gpu"}))
    with_time = JobDescription(executable="x", wall_time=3601)
    jobs = [
        (1, "Waiting", 1, with_time),
        (2, "Waiting", 1, JobDescription(executable="x")),
        (3, "Done", 1, with_time),
        (4, "", 0, with_time),
        (5, "Running", 1, JobDescription(executable="x", wall_time=60)),
    ]
    fill_with_jobs(unmade, plain, jobs)
    upgrade(unmade.engine)
    check_queues(
        unmade,
        {
            1: replace(plain, wall_time=3900),
            2: plain,
            3: plain,
            4: replace(plain, wall_time=3900),
            5: replace(plain, wall_time=60),
        },
    )


def test_jobs_of_before_wait_in_a_queue_with_their_host_requirements_and_output_se(unmade: Store) -> None:
    upgrade(unmade.engine, "0032")
    plain = QueueIdentity("alice", "physics", requirements="other.x > 1", wall_time=600)
    fast = JobDescription(
        executable="x", host_requirements='other.gluehostbenchmarksi00 > 500 && a == "\u00fc\\""'
    )
    near = JobDescription(executable="x", output_se="se1.example.org")
    both = replace(fast, output_se="se1.example.org")
    jobs = [
        (1, "Waiting", 1, fast),
        (2, "Waiting", 1, near),
        (3, "Running", 1, both),
        (4, "", 0, both),
        (5, "Done", 1, both),
        (6, "Waiting", 1, JobDescription(executable='"output_se"')),
        (7, "Rescheduled", 1, near),
    ]
    fill_with_jobs(unmade, plain, jobs)
    upgrade(unmade.engine)
    of_fast = replace(plain, host_requirements=fast.host_requirements)
    of_near = replace(plain, output_se=near.output_se)
    of_both = replace(of_fast, output_se=near.output_se)
    check_queues(unmade, {1: of_fast, 2: of_near, 3: of_both, 4: of_both, 5: plain, 6: plain, 7: of_near})


FILLED_0001 = (
    "INSERT INTO instance (id, uuid, incarnation, alive_at) VALUES (1, 'u', 1, 100.0)",
    "INSERT INTO submissions (id, owner, grp, submitted, description, inputs, names, job_name, job_group, job_type,"
    " queue_id, first_job, count, warnings)"
    " VALUES (1, 'alice', 'physics', 1.0, '{}', '[]', '[]', '', '', 'User', 1, 1, 2, '[]')",
    *(
        f"INSERT INTO jobs (id, submission_id, queue_id, state, user_priority, submitted)"
        f" VALUES ({job}, 1, 1, 'Running', 1, 1.0)"
        for job in (1, 2)
    ),
    "INSERT INTO pilots (id, stamp, secret_hash, idx, state, site, ce, pilot_type, processors, memory, submitted)"
    " VALUES (7, 's', 'h', 0, 'Running', 'here', 'local', 'generic', 1, 0, 1.0)",
    # A try that has ended, one that runs with a pilot that is gone, one of a job that is gone.
    "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started, ended, wall) VALUES (1, 1, 1, 7, 5.0, 60.0, 40)",
    "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started) VALUES (2, 1, 1, 8, 5.0)",
    "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started, ended) VALUES (3, 1, 1, 7, 5.0, 60.0)",
)
"""Rows of the first schema."""


def test_a_newer_schema_is_refused_and_left_alone(store: Store) -> None:
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(Conflict, match="9999"):
        upgrade(store.engine)
    assert current_revision(store.engine) == "9999"


REVISIONS = [script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()]


@pytest.mark.slow
@pytest.mark.parametrize("revision", REVISIONS)
def test_every_upgrade_keeps_the_rows_of_every_table(unmade: Store, revision: str) -> None:
    """Each table of each earlier schema has rows; all columns that are still there say what they said.

    The counters of jobs are the numbers of their rows.
    """
    upgrade(unmade.engine, revision)
    earlier = sa.MetaData()
    earlier.reflect(unmade.engine)
    tables = [
        table
        for name, table in earlier.tables.items()
        if name != "alembic_version" and not is_partition(name)
    ]
    assert tables
    with unmade.engine.begin() as connection:
        for table in tables:
            connection.execute(table.delete())
            for row in (1, 2):
                values = {c.name: _value(c, row) for c in table.columns}
                connection.execute(table.insert().values(values))
    upgrade(unmade.engine)
    assert current_revision(unmade.engine) == head_revision()
    tables = [table for table in tables if table.name != "history_counts"]  # counted anew
    derived = {"submissions": {"pending"}}  # has become rows of other tables
    if revision == "0001":
        derived["attempts"] = {"owner", "grp", "site"}
    with unmade.engine.connect() as connection:
        for table in tables:
            columns = [c for c in table.columns if c.name not in derived.get(table.name, set())]
            found = connection.execute(sa.select(*columns).order_by(*table.primary_key.columns)).all()
            assert [tuple(row) for row in found] == [
                tuple(_value(c, row) for c in columns) for row in (1, 2)
            ], table.name
    if "count_changes" not in earlier.tables:
        assert_counted(unmade.readers.connection())


def _value(column: sa.Column[Any], row: int) -> Any:
    if isinstance(column.type, sa.LargeBinary):
        return bytes([row])
    if isinstance(column.type, sa.Integer):
        return row
    if isinstance(column.type, sa.Float):
        return row / 4
    return f"{column.name} {row}"


def test_what_was_accepted_before_chunks_is_still_made(unmade: Store) -> None:
    upgrade(unmade.engine, "0005")
    sql = (
        "INSERT INTO submissions (id, owner, grp, submitted, description, inputs, names, job_name, job_group,"
        " job_type, queue_id, first_job, count, warnings, pending)"
        " VALUES (?, 'alice', 'physics', 5.0, '{}', '[]', '[]', 'n', '', 'User', 1, ?, ?, '[]', ?)"
    )
    connection = unmade.open_writer()
    connection.execute(sql, (1, 1, 3, None))
    connection.execute(sql, (2, 4, 3, "[[1],[2],[3]]"))
    connection.execute(sql, (3, 7, 1, "[]"))
    job = (
        "INSERT INTO jobs (id, submission_id, queue_id, state, user_priority, submitted)"
        " VALUES (?, ?, 1, 'Waiting', 1, 5.0)"
    )
    for number, submission in ((1, 1), (2, 1), (3, 1), (4, 2), (5, 2)):
        connection.execute(job, (number, submission))
    connection.close()
    upgrade(unmade.engine)
    connection = unmade.open_writer()
    assert submissions.with_unmade_jobs(connection) == [2, 3]
    made = [chunks.by_number(connection, SubmissionId(number), 0) for number in (1, 2, 3)]
    assert made == [
        chunks.ChunkRow(SubmissionId(1), 0, "", JobId(1), 3, 3, 5.0),
        chunks.ChunkRow(SubmissionId(2), 0, "", JobId(4), 3, 2, 5.0),
        chunks.ChunkRow(SubmissionId(3), 0, "", JobId(7), 1, 0, 5.0),
    ]
    assert [chunks.pending_rows(connection, SubmissionId(number), 0) for number in (2, 3)] == [
        "[[1],[2],[3]]",
        "[]",
    ]
    row = submissions.by_id(connection, SubmissionId(2))
    assert row is not None
    assert (row.state, row.touched, row.expected) == (submissions.CLOSED, 5.0, None)
    connection.close()


def test_old_jobs_and_events_of_before_are_divided_into_their_months(unmade: Store) -> None:
    """Also those of dates that no calendar has; nothing of them is lost."""
    ends = [0.0, 2678399.5, 2678400.0, 1577836800.0, 1580515199.0, 1580515200.0, -1.0, 1e14]
    upgrade(unmade.engine, "0006")
    connection = unmade.open_writer()
    connection.begin()
    for place, at in enumerate(ends, 1):
        connection.execute(
            "INSERT INTO history (id, submission_id, queue_id, state, user_priority, epoch, attempt, failures,"
            " own_failures, finished_epoch, finished_digest, reason, submitted, ended, last_event, owner, grp,"
            " job_name, job_group, job_type, site, ce, hostname) VALUES"
            " (?, 1, 1, 'Done', 1, 1, 1, 0, 0, 1, '', '', 1.0, ?, ?, 'o', 'g', 'n', '', '', '', '', '')",
            (place, at, place),
        )
        connection.execute(
            "INSERT INTO events (id, at, kind, actor, old, new, detail, jobs) VALUES (?, ?, 'x', '', '', '', '', '[]')",
            (place, at),
        )
    connection.commit()
    read = [f"SELECT * FROM {table} ORDER BY id" for table in ("history", "events")]
    before = [connection.execute(sql).fetchall() for sql in read]
    connection.close()
    upgrade(unmade.engine)
    connection = unmade.open_writer()
    assert [connection.execute(sql).fetchall() for sql in read] == before
    if unmade.name == "postgresql":
        for table in ("history", "events"):
            rows = connection.execute(f"SELECT tableoid::regclass::text FROM {table} ORDER BY id").fetchall()
            assert [row[0].removeprefix(f"{table}_") for row in rows] == [
                "197001", "197001", "197002", "202001", "202001", "202002", "default", "default",
            ]  # fmt: skip
            # That of now and the next ones are there; the server goes on from here.
            assert partitions.missing_months(connection, table, database_time(connection, 0.0)) == []
    assert jobs.by_ids(connection, [JobId(4)])[4].state == "Done"
    assert events.last_event(connection) == len(ends)
    connection.close()
