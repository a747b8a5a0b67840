"""The section of a new CE: its sizes and limits, and its place in the text of a policy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.errors import Conflict, InvalidInput, NotFound
from pilotage.core.policy import Ce, Policy, annotated, changes, initial, parse
from pilotage.core.policy.batch_systems.sge import SgeOptions
from pilotage.core.policy.batch_systems.slurm import SlurmOptions
from pilotage.core.policy.ce_names import mistake_in_name
from pilotage.core.policy.lookup import ce_by_name, ce_to_ask
from pilotage.core.policy.new_ce import (
    NewCe,
    NodeSize,
    PartitionFacts,
    batch_section,
    choose_partition,
    choose_site,
    insert_section,
    local_section,
    require_free_name,
)

SHORT = PartitionFacts("short", True, True, 1800.0, (NodeSize(3, 16, 64000),))
LONG = PartitionFacts("long", False, True, 172800.0, (NodeSize(1, 6, 12000),))
ENDLESS = PartitionFacts("endless", False, False, None, (NodeSize(1, 7, 1),))
NEW = NewCe("cluster", "here")


def proposed(ce: NewCe, partition: PartitionFacts) -> Policy:
    text = initial("ada", "here")
    return parse(insert_section(text, ce.name, batch_section(ce, "slurm", partition)))


def test_a_pilot_is_a_whole_part_of_a_node_within_the_limit() -> None:
    ce = proposed(NEW, SHORT).ces["cluster"]
    assert (ce.pilot_processors, ce.pilot_memory, ce.wall) == (4, 16000, 1800.0)
    assert (ce.max_waiting, ce.max_running, ce.idle, ce.heartbeat) == (5, 20, 30.0, 60.0)
    assert (ce.listing_period, ce.submit_rate, ce.options_as(SlurmOptions).partition) == (60.0, 1.0, "short")
    ce = proposed(NEW, LONG).ces["cluster"]
    assert (ce.pilot_processors, ce.pilot_memory, ce.wall) == (3, 6000, 86400.0)
    # Its nodes do not say how much memory they have.
    ce = proposed(NEW, ENDLESS).ces["cluster"]
    assert (ce.pilot_processors, ce.pilot_memory, ce.wall) == (1, 0, 86400.0)


def test_a_pilot_fits_the_commonest_nodes() -> None:
    """A pilot as large as the fattest node would never run on most of them."""
    fat, nearly = NodeSize(4, 16, 512_000), (NodeSize(3, 8, 32_100), NodeSize(5, 8, 32_000))
    partition = PartitionFacts("mixed", True, True, None, (fat, *nearly))
    ce = proposed(NEW, partition).ces["cluster"]
    assert (ce.pilot_processors, ce.pilot_memory) == (4, 16_000)
    assert batch_section(NEW, "slurm", partition).startswith(
        "# Partition mixed: 8 nodes with 8 cores and 32000 MB, 4 nodes with 16 cores and 512000 MB; no time limit."
        " The pilots fit the first.\n"
    )
    # A size that only the others have is for them.
    ce = proposed(replace(NEW, memory=100_000), partition).ces["cluster"]
    assert (ce.pilot_processors, ce.pilot_memory) == (4, 100_000)
    ce = proposed(replace(NEW, processors=16), partition).ces["cluster"]
    assert (ce.pilot_processors, ce.pilot_memory) == (16, 512_000)
    with pytest.raises(InvalidInput, match="has 16 cores and 600000 MB") as caught:
        proposed(replace(NEW, processors=16, memory=600_000), partition)
    assert "4 nodes with 16 cores and 512000 MB" in caught.value.hint


def test_a_person_may_choose() -> None:
    options = {"account": "phys", "qos": "night"}
    wanted = NewCe("c", "here", "any", 8, 500, 600.0, max_waiting=1, max_running=2, options=options)
    ce = proposed(wanted, SHORT).ces["c"]
    assert (ce.owners, ce.pilot_processors, ce.pilot_memory, ce.wall) == ("any", 8, 500, 600.0)
    assert (ce.max_waiting, ce.max_running) == (1, 2)
    chosen = ce.options_as(SlurmOptions)
    assert (chosen.account, chosen.qos, chosen.partition) == ("phys", "night", "short")
    local = parse(
        insert_section(initial("ada", "here"), "two", local_section(NewCe("two", "here", processors=2)))
    )
    assert (local.ces["two"].type, local.ces["two"].processors) == ("local", 2)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"processors": 17}, "no node of partition short has 17 cores"),
        ({"memory": 64001}, "has 64001 MB"),
        ({"wall": 1801.0}, "allows 1800 s, not 1801"),
    ],
)
def test_a_pilot_that_could_never_start_is_refused(change: dict[str, float], error: str) -> None:
    with pytest.raises(InvalidInput, match=error) as caught:
        batch_section(replace(NEW, **change), "slurm", SHORT)  # type: ignore[arg-type]
    assert caught.value.hint


def test_the_partition() -> None:
    assert choose_partition([LONG, SHORT], "") == SHORT
    assert choose_partition([ENDLESS, LONG], "") == LONG
    assert choose_partition([ENDLESS], "") == ENDLESS
    assert choose_partition([SHORT, ENDLESS], "endless") == ENDLESS
    with pytest.raises(InvalidInput) as caught:
        choose_partition([SHORT, LONG], "lnog")
    assert caught.value.hint == "partitions: short, long"
    with pytest.raises(InvalidInput, match="no partition"):
        choose_partition([], "")


def test_the_site_and_the_name() -> None:
    policy = parse(initial("ada", "here"))
    assert choose_site(policy, "") == choose_site(policy, "here") == "here"
    with pytest.raises(InvalidInput, match="no site there"):
        choose_site(policy, "there")
    with pytest.raises(InvalidInput, match="2 sites"):
        choose_site(parse(initial("ada", "here") + "[sites.there]\n"), "")
    require_free_name(policy, "cluster")
    with pytest.raises(Conflict, match="CE local already"):
        require_free_name(policy, "local")


def test_a_section_follows_the_other_ces_and_all_else_stays() -> None:
    text = annotated("ada", "here")
    section = local_section(NewCe("odd name", "here"))
    changed = insert_section(text, "odd name", section)
    before, after = changed.split("\n" + section)
    # Comments below the last key of a CE stay with it, and the heading of the next table with that table.
    assert before.endswith("waits for another job\n")
    assert after.startswith("\n# --- Matching")
    assert before + after.removeprefix("\n") in (text, text.replace("\n\n# --- Matching", "\n# --- Matching"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[groups.home]",
        "# only a comment",
        '[ces.a]\nsite = "x"\n[sites.x]\n',
        '[ces.a]\nsite = """\n# no comment\n# [ces.b]"""\n\n[sites.x]\n# the end',
        '[ces]\na.site = "x"\n[sites.x]\n[[limits]]\nattribute = "owner"\n',
        'ces.a = { site = "x" }\n[sites.x]\n',
        '[ces.a]\r\nsite = "x"\r\n',
        '[ces.a]\nsite = "x"\ntags = [\n# one\n"b",\n]\n# below\n\n[sites.x]\n',
    ],
)
def test_every_text_gets_the_section_and_nothing_else(text: str) -> None:
    changed = insert_section(text, "new", local_section(NewCe("new", "x")))
    assert {change.key for change in changes(text, changed)} == {
        "ces.new.site",
        "ces.new.type",
        "ces.new.owners",
    }
    for line in text.splitlines():
        assert line in changed.splitlines()


def test_a_text_without_room_for_it_is_left_alone() -> None:
    with pytest.raises(Conflict, match="cannot be added") as caught:
        insert_section('ces = { a = { site = "x" } }\n', "new", local_section(NewCe("new", "x")))
    assert '[ces.new]\nsite = "x"' in caught.value.hint


@given(
    st.text(min_size=1, max_size=20).filter(lambda name: not mistake_in_name(name) and name != "local"),
    st.integers(1, 512),
    st.integers(1, 4_000_000),
    st.none() | st.floats(60, 1e8),
)
def test_every_proposal_is_a_valid_policy(name: str, cores: int, memory: int, wall: float | None) -> None:
    partition = PartitionFacts('p "q\\', True, True, wall, (NodeSize(2, cores, memory),))
    ce = proposed(NewCe(name, "here"), partition).ces[name]
    assert ce.options_as(SlurmOptions).partition == 'p "q\\'
    assert cores % ce.pilot_processors == 0
    assert 1 <= ce.pilot_processors <= 4
    assert ce.pilot_memory * (cores // ce.pilot_processors) <= memory
    assert ce.wall <= (wall or 86400.0)


def test_the_type_names_its_queue_and_how_many_cores_its_pilots_may_have() -> None:
    text = initial("ada", "here")

    def ce(**options: str) -> Ce:
        section = batch_section(NewCe("cell", "here", options=options), "sge", LONG)
        return parse(insert_section(text, "cell", section)).ces["cell"]

    assert (ce().options_as(SgeOptions).queue, ce().pilot_processors) == ("long", 1)
    assert (ce(pe="smp").pilot_processors, ce(queue="other.q").options_as(SgeOptions).queue) == (3, "other.q")
    assert ce(qmaster_port="6444").options_as(SgeOptions).qmaster_port == 6444
    changed = insert_section(text, "cell", batch_section(NewCe("cell", "here"), "sge", LONG))
    with pytest.raises(InvalidInput, match="parallel environment"):
        parse(changed.replace("pilot_processors = 1", "pilot_processors = 2"))


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("sge", {"qmaster_port": "-1"}, "qmaster_port must be a number from 0 to 65,535"),
        ("sge", {"qmaster_port": "70000"}, "qmaster_port must be a number from 0 to 65,535"),
        ("sge", {"queue": "a" * 201}, "queue has more than 200 characters"),
        ("slurm", {"log_folder": "logs"}, "log_folder must be an absolute path"),
        ("slurm", {"constraint": "a\nb"}, "constraint has characters that cannot be shown"),
        ("slurm", {"partition": "a\x1b[1m"}, "partition has characters that cannot be shown"),
    ],
)
def test_options_out_of_range_are_refused_before_a_batch_system_is_asked(
    kind: str, options: dict[str, str], expected: str
) -> None:
    with pytest.raises(InvalidInput, match=expected):
        ce_to_ask(kind, options)


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("LOCAL", "no CE LOCAL", "did you mean local?"),
        ("local ", "no CE 'local '", "did you mean local?"),
        ("", "no CE ''", "CEs: local"),
        ("a\nb", "no CE 'a\\\\nb'", "CEs: local"),
    ],
)
def test_an_unknown_ce_is_shown_whole_with_the_nearest_one(name: str, message: str, hint: str) -> None:
    policy = parse('[groups.g]\n[users.u]\ngroups = ["g"]\n[sites.s]\n[ces.local]\nsite = "s"\n')
    with pytest.raises(NotFound, match=message) as refused:
        ce_by_name(policy, name)
    assert hint in refused.value.hint
