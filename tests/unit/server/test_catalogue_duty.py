"""The duties of outside catalogues in a time of the tests': readings, outages, registrations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pilotage.core.datasets.facts import FileEntry, Replica
from pilotage.core.errors import Conflict, Forbidden, NotFound, PilotageError, Unreachable
from pilotage.outside.catalogue.adapter import BlockPlaces, CatalogueBlock, CatalogueContents
from pilotage.services.catalogue import following, outputs, registration
from pilotage.services.catalogue.outputs import WrittenFile
from pilotage.store.tables import registrations
from tests.paper_catalogue import HERE
from tests.unit.server.catalogue_copies import CATALOGUE, Copies


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Copies]:
    copies = Copies(tmp_path, monkeypatch)
    yield copies
    copies.bench.end()


def test_closed_blocks_are_copied_with_their_places_and_open_ones_wait(copies: Copies) -> None:
    copies.paper.add("data:a", 700)
    copies.paper.add("data:b", 2, is_open=True)
    copies.paper.add("data:gone", 1, places=BlockPlaces((), ("T9: the policy names no site for it",)))
    copies.follow()
    copies.run()
    blocks = copies.blocks()
    assert {name: (block.files, block.open) for name, block in blocks.items()} == {
        "data:a": (700, False),
        "data:gone": (1, False),
    }
    assert copies.sites("data:a") == {"here"}
    assert copies.sites("data:gone") == frozenset(), "known to be nowhere, which is not unknown"
    assert copies.dataset.open
    note = "1 block is open there; 1 block at T9: the policy names no site for it"
    assert (copies.followed.read, copies.followed.note) == (copies.bench.now, note)
    copies.paper.add("data:b", 2)
    copies.paper.close_contents()
    copies.bench.now += 10
    copies.follow()
    copies.run()
    assert not copies.dataset.open
    assert copies.blocks()["data:b"].files == 2


def test_open_data_sets_become_work_with_each_reading_if_the_policy_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = CATALOGUE.replace("retry = 60", 'retry = 60\nopen_datasets = "take"')
    copies = Copies(tmp_path, monkeypatch, policy)
    copies.paper.add("data:a", 2, is_open=True)
    for files in (2, 2, 5):
        copies.paper.add("data:a", files, is_open=True)
        copies.follow()
        copies.run()
        copies.bench.now += 10
    assert {name: block.files for name, block in copies.blocks().items()} == {"data:a": 2, "data:a#2": 3}
    copies.paper.places_of["data:a"] = BlockPlaces(())
    copies.follow()
    copies.run()
    assert copies.sites("data:a") == copies.sites("data:a#2") == frozenset()
    copies.bench.end()


def test_an_hour_without_the_catalogue_changes_nothing_and_is_told_once(
    copies: Copies, caplog: pytest.LogCaptureFixture
) -> None:
    copies.paper.add("data:a", 2)
    copies.follow()
    copies.run()
    began = copies.bench.now
    copies.paper.error = Unreachable("no answer")
    copies.bench.now += 1
    copies.follow()
    for _ in range(720):
        copies.run()
        copies.bench.now += 5
    assert copies.paper.greetings <= 1 + 61, "asked once in each pause"
    assert copies.sites("data:a") == {"here"}
    assert copies.followed.read == began
    assert copies.problem == "no answer"
    assert caplog.text.count("no answer") == 1
    copies.paper.error = None
    copies.bench.now += 60
    copies.run()
    assert copies.problem == ""
    assert copies.followed.read == copies.bench.now
    assert caplog.text.count("no answer") == 1


def test_somebody_who_asks_does_not_wait_for_the_pause(copies: Copies) -> None:
    copies.paper.error = Forbidden("not yours")
    copies.follow()
    copies.run()
    copies.run()
    assert (copies.paper.greetings, copies.problem) == (1, "not yours")
    copies.bench.now += 1
    copies.follow()
    copies.run()
    assert copies.paper.greetings == 2


def test_a_block_that_is_lost_or_unlisted_keeps_its_files(copies: Copies) -> None:
    copies.paper.add("data:a", 2)
    copies.paper.add("data:b", 2)
    copies.follow()
    copies.run()
    copies.paper.places_of["data:a"] = BlockPlaces(())
    del copies.paper.places_of["data:b"]
    copies.paper.contents_of = CatalogueContents(True, ())
    copies.bench.now += 1
    copies.follow()
    copies.run()
    assert copies.sites("data:a") == frozenset()
    assert copies.sites("data:b") == {"here"}, "the catalogue says nothing: the last location stays"
    assert [block.files for block in copies.blocks().values()] == [2, 2]


def test_a_reading_that_was_cut_goes_on(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    copies.paper.add("data:a", 900)
    passed = copies.pool.refuse(following, "store_files", lambda *_, complete, **more: complete)
    copies.follow()
    copies.run()
    assert copies.blocks()["data:a"].open
    assert len(passed) == 2
    monkeypatch.undo()
    copies.bench.now += 61
    copies.run()
    assert (copies.blocks()["data:a"].files, copies.blocks()["data:a"].open) == (900, False)


def test_a_problem_of_one_data_set_is_its_own(copies: Copies) -> None:
    copies.paper.contents_of = CatalogueContents(True, (CatalogueBlock("data:a", False, 1),))
    copies.paper.places_of["data:a"] = HERE

    def missing(block: str) -> Sequence[FileEntry]:
        raise NotFound(f"there is no {block}")

    copies.paper.files = missing  # type: ignore[method-assign]
    copies.follow()
    copies.run()
    assert (copies.followed.problem, copies.problem) == ("there is no data:a", "")
    assert copies.followed.read is None


def test_users_do_not_change_a_copy(copies: Copies) -> None:
    copies.follow()
    with pytest.raises(Conflict, match="is a copy"):
        registration.check_own(copies.dataset)


# --- outputs


def written(copies: Copies, *blocks: str, name: str = "c:data:out") -> int:
    """An output data set of a request with a closed block of two files for each name; returns its id."""

    def write(tx: object) -> int:
        row = outputs.create_output(
            tx,  # type: ignore[arg-type]
            name,
            owner="alice",
            group="physics",
            request=1,
            step=0,
            catalogue="c",
            now=copies.bench.now,
        )
        assert row is not None
        for job, block in enumerate(blocks, start=1):
            files = [
                WrittenFile(row.id, FileEntry(f"{job}/{number}", 1), Replica(block, "/out"))
                for number in (1, 2)
            ]
            outputs.register_outputs(tx, job, files, copies.bench.now)  # type: ignore[arg-type]
        assert outputs.close_output(tx, row.id, copies.bench.now)  # type: ignore[arg-type]
        return row.id

    return copies.bench.do(write)


def test_closed_blocks_are_registered_once_and_then_the_data_set_ends(copies: Copies) -> None:
    written(copies, "here", "there")
    copies.run(copies.registrations)
    copies.run(copies.registrations)
    first, second = copies.paper.registered
    assert (first.collection, first.name, len(first.files)) == ("data:out", "here", 2)
    assert (second.name, second.replicas) == ("there", (Replica("there", "/out"),))
    assert copies.paper.finished == ["data:out"]
    assert registrations.counts(copies.bench.connection)["c"] == (2, 0, "")


def test_a_refused_block_holds_up_no_other_and_is_tried_again(copies: Copies) -> None:
    written(copies, "here", "there")
    copies.paper.refused["here"] = Conflict("other files")
    copies.run(copies.registrations)
    assert [block.name for block in copies.paper.registered] == ["there"]
    assert registrations.counts(copies.bench.connection)["c"] == (1, 1, "other files")
    copies.run(copies.registrations)
    assert copies.paper.finished == []
    copies.paper.refused.clear()
    copies.bench.now += 61
    copies.run(copies.registrations)
    assert copies.paper.finished == ["data:out"]


def test_an_outage_at_one_block_lets_others_go_first_later(copies: Copies) -> None:
    written(copies, "here", "there")
    copies.paper.refused["here"] = Unreachable("500 for this block")
    copies.paper.breaks = True
    copies.run(copies.registrations)
    assert (copies.paper.registered, copies.problem) == ([], "500 for this block")
    copies.paper.breaks, copies.paper.error = False, None
    copies.bench.now += 61
    copies.run(copies.registrations)
    assert [block.name for block in copies.paper.registered] == ["there"]


SPOILT = (Unreachable("answers 500"), Forbidden("not this one"), Conflict("other files"), NotFound("gone"))


@pytest.mark.parametrize("error", SPOILT)
def test_a_block_that_the_catalogue_refuses_stops_neither_readings_nor_other_blocks(
    copies: Copies, error: PilotageError
) -> None:
    written(copies, "here", "there")
    copies.paper.refused["here"] = error
    copies.paper.add("data:a", 2)
    copies.follow()
    copies.use()
    # The registration is tried again all the time, and the readings come at their period.
    for minute in range(12):
        copies.run(copies.registrations)
        copies.run()
        copies.bench.now += 61
        if minute == 5:
            copies.paper.add("data:late", 3)
    assert [block.name for block in copies.paper.registered] == ["there"]
    assert registrations.counts(copies.bench.connection)["c"] == (1, 1, str(error))
    assert (copies.problem, copies.blocks()["data:late"].files) == ("", 3)


@pytest.mark.parametrize("call", ["files", "places"])
@pytest.mark.parametrize("error", SPOILT)
def test_a_block_that_cannot_be_read_is_left_out_and_all_others_are_stored(
    copies: Copies, error: PilotageError, call: str
) -> None:
    copies.paper.add("data:a", 2)
    copies.paper.add("data:bad", 2)
    copies.paper.add("data:z", 3)
    copies.paper.close_contents()
    copies.paper.spoilt[call] = ("data:bad", error)
    copies.follow()
    copies.run()
    assert {name: block.files for name, block in copies.blocks().items()} == {"data:a": 2, "data:z": 3}
    assert (copies.problem, copies.followed.problem, copies.followed.read) == ("", str(error), None)
    assert copies.dataset.open, "more is known to come"
    copies.paper.spoilt.clear()
    copies.bench.now += 61
    copies.run()
    assert (copies.blocks()["data:bad"].files, copies.dataset.open) == (2, False)


def test_an_end_that_the_catalogue_refuses_holds_up_no_other(copies: Copies) -> None:
    written(copies, "here")
    written(copies, "there", name="c:data:other")
    copies.paper.refused["data:out"] = Conflict("not yours")
    for _ in range(3):
        copies.run(copies.registrations)
    assert (copies.paper.finished, copies.problem) == (["data:other"], "")
    copies.paper.refused.clear()
    copies.bench.now += 61
    copies.run(copies.registrations)
    assert copies.paper.finished == ["data:other", "data:out"]


def test_a_place_is_lost_only_if_it_is_told_twice(copies: Copies) -> None:
    copies.paper.add("data:a", 2)
    copies.follow()
    copies.run()
    for answers, sites in (([BlockPlaces(()), HERE], {"here"}), ([BlockPlaces(())] * 2, frozenset())):
        copies.paper.told_places = [{"data:a": places} for places in answers]
        copies.bench.now += 1
        copies.follow()
        copies.run()
        assert copies.sites("data:a") == sites


def test_a_new_block_without_an_answer_is_unknown(copies: Copies) -> None:
    copies.paper.add("data:a", 2)
    copies.paper.close_contents()
    copies.paper.told_places = [{}]
    copies.follow()
    copies.run()
    assert (copies.dataset.open, copies.followed.read) == (True, None)
    assert "does not tell where data:a is" in copies.followed.problem


def test_an_outcome_that_was_not_stored_is_found_out_again(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(copies, "here")
    copies.pool.refuse(registrations, "finish", lambda *_, **more: True)
    copies.run(copies.registrations)
    monkeypatch.undo()
    copies.bench.now += 61
    copies.run(copies.registrations)
    assert [block.name for block in copies.paper.registered] == ["here", "here"]
    assert copies.paper.finished == ["data:out"]
