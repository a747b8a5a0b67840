"""A policy is refused with its line and reason, or all statements after it work."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pilotage.core import policy as policies
from pilotage.core.errors import InvalidInput, Overloaded
from pilotage.core.policy.bounds import RANGES
from pilotage.services.policy.apply import apply_policy
from pilotage.services.shares import corrections
from pilotage.services.shares.corrections import UseBook
from pilotage.store.tables import usage
from tests.unit.services.bench import Bench

INTEGERS = (
    "0",
    "1",
    "2",
    "3",
    "500",
    "-1",
    str(2**31),
    str(10**12),
    str(2**53),
    str(2**63 - 1),
    str(2**63),
    str(2**70),
)
REALS = (
    "0",
    "0.0",
    "1e-320",
    "1e-6",
    "0.5",
    "1.0",
    "60",
    "1e6",
    "1e12",
    "3e9",
    "1e16",
    "1e308",
    "inf",
    "nan",
    "-1.0",
)


def entries(prefix: str) -> st.SearchStrategy[dict[str, str]]:
    """Some numbers of a table, as TOML."""
    keys = sorted(key.removeprefix(prefix) for key in RANGES if key.startswith(prefix))
    plain = [key for key in keys if "." not in key and key != "gain"]

    def value(key: str) -> st.SearchStrategy[str]:
        low, high = RANGES[prefix + key]
        ends = [str(low), str(high), str(int(high)), str(int(high / 2))]
        return st.sampled_from(ends) | st.sampled_from(ends) | st.sampled_from(INTEGERS + REALS)

    buckets = st.lists(st.sampled_from(INTEGERS), min_size=1, max_size=3).map(
        lambda items: f"[{', '.join(sorted(items, key=int))}]"
    )
    return st.fixed_dictionaries(
        {}, optional={key: buckets if key.endswith("_buckets") else value(key) for key in plain}
    ).filter(lambda chosen: len(chosen) <= 2)


@dataclass(frozen=True)
class Numbers:
    tables: dict[str, dict[str, str]]

    def text(self) -> str:
        tables = {
            "groups.physics": {},
            "groups.sharing": {"properties": '["NORMAL_USER", "JOB_SHARING"]'},
            "users.alice": {"groups": '["physics", "sharing"]'},
            "users.bob": {"groups": '["physics"]'},
            "sites.here": {},
            "ces.local": {"site": '"here"', "owners": '"any"'},
            **{name: {} for name in self.tables},
        }
        if self.tables.get("correction.WMSHistory.i.slices.hour") is not None:
            tables = {**tables, "correction": {"correctors": '["WMSHistory"]'}}
            tables.setdefault("correction.WMSHistory.i", {})
        if "[limits]" in tables:
            tables["[limits]"] = {"attribute": '"owner"', "value": '"alice"', "running": "5"}
        lines = []
        for name, fixed in tables.items():
            lines.append(f"[{name}]")
            lines += [f"{key} = {value}" for key, value in {**fixed, **self.tables.get(name, {})}.items()]
        return "\n".join(lines) + "\n"


numbers = st.fixed_dictionaries(
    {},
    optional={
        "groups.physics": entries("groups.*."),
        "ces.local": entries("ces.*."),
        "matching": entries("matching."),
        "jobs": entries("jobs."),
        "[limits]": entries("limits.*."),
        "correction.WMSHistory.i": entries("correction.WMSHistory.*."),
        "correction.WMSHistory.i.slices.hour": entries("correction.WMSHistory.*.slices.*."),
        "accounting": entries("accounting."),
        "retention": entries("retention."),
    },
).map(Numbers)


@pytest.fixture(scope="module")
def folders() -> Iterator[Iterator[Path]]:
    root = Path(tempfile.mkdtemp(prefix="pilotage-policies-"))
    made = (root / str(number) for number in itertools.count())
    yield made
    shutil.rmtree(root)


def parsed(text: str) -> policies.Policy | InvalidInput:
    try:
        return policies.parse(text)
    except InvalidInput as error:
        return error


@settings(
    max_examples=2 * settings().max_examples,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@example(Numbers({"matching": {"cpu_buckets": f"[{2**70}]"}}))
@example(Numbers({"matching": {"cpu_buckets": f"[{2**63 - 1}]", "memory_buckets": "[1]"}}))
@example(Numbers({"jobs": {"retry_delay": "1e308"}, "ces.local": {"cpu_power": "1e308"}}))
@example(Numbers({"ces.local": {"memory": str(2**63), "wall": "1e308"}}))
@given(numbers=numbers)
def test_accepted_policies_match_and_submit(folders: Iterator[Path], numbers: Numbers) -> None:
    text = numbers.text()
    policy = parsed(text)
    if isinstance(policy, InvalidInput):
        assert policy.line is not None, f"{policy}: {text}"
        assert policy.message
        return
    folder = next(folders)
    folder.mkdir()
    bench = Bench(folder)
    try:
        bench.do(lambda tx: apply_policy(bench.pool, tx, policy, text, by="alice", reason="", now=bench.now))
        _a_day(bench)
        # And the next one can be applied.
        bench.do(
            lambda tx: apply_policy(
                bench.pool,
                tx,
                policies.parse(bench.policy_text),
                bench.policy_text,
                by="alice",
                reason="",
                now=bench.now,
            )
        )
        bench.check()
    finally:
        bench.end()


def _a_day(bench: Bench) -> None:
    """Jobs come, run, fail and finish; shares are corrected; a server starts anew."""
    for memory, cpu_time in ((0, 0), (2048, 10**6), (10**6, 10**9)):
        # The policy may let nobody have waiting jobs.
        with suppress(Overloaded):
            bench.submit(memory=memory, cpu_time=cpu_time)
    pilot = bench.pilot()
    pilot.enrol()
    for number in range(1, 4):
        for offer in pilot.take(2, number=number, memory=10**7, processors=4, cpu_left=1e12):
            pilot.confirm(offer)
            pilot.finish(offer, **({"failure": "node"} if number == 1 else {}))
        bench.later(30.0)
    _correct(bench)
    bench.close()
    bench.open()
    bench.later(100_000.0)
    _correct(bench)
    bench.tidy()


def _correct(bench: Bench) -> None:
    bench.sign_of_life()
    book = UseBook(bench.pool.policy.accounting.history)
    charged = book.charge(bench.connection)
    for part in book.saving(charged):
        bench.do(lambda tx, part=part: corrections.save_use(tx, part))
    last, memory = usage.corrector_memory(bench.connection)
    found = corrections.compute_corrections(book, corrections.waiting_entities(bench.pool), last, memory)
    bench.do(lambda tx: corrections.apply_corrections(bench.pool, tx, found, charged.as_of))
    while not bench.do(lambda _: corrections.apply_priorities(bench.pool.queues)):
        pass
