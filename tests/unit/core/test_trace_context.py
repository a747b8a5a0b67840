"""Trace contexts of W3C, and the stages of an attempt."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.trace_context import AttemptTimes, TraceContext, read_traceparent, stages_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"00-{TRACE}-{SPAN}-01", TraceContext(TRACE, SPAN)),
        (f" 00-{TRACE}-{SPAN}-00 ", TraceContext(TRACE, SPAN, sampled=False)),
        (f"00-{TRACE}-{SPAN}-03", TraceContext(TRACE, SPAN)),
        (f"cc-{TRACE}-{SPAN}-01-more", TraceContext(TRACE, SPAN)),
        *((text, None) for text in ("", "00", f"00-{TRACE}-{SPAN}", f"00-{TRACE}-{SPAN}-01-more")),
        *((text, None) for text in (f"ff-{TRACE}-{SPAN}-01", f"00-{TRACE.upper()}-{SPAN}-01")),
        *((text, None) for text in (f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01")),
        (f"00-{TRACE}-{SPAN}-01" + "-x" * 1000, None),
    ],
)
def test_a_header_is_read_as_the_standard_says(text: str, found: TraceContext | None) -> None:
    assert read_traceparent(text) == found


@given(st.text(max_size=80))
def test_any_text_is_a_context_or_none(text: str) -> None:
    found = read_traceparent(text)
    assert found is None or read_traceparent(found.header) == found


def test_names_give_ids() -> None:
    context = TraceContext(TRACE, SPAN)
    names = [("attempt", 1, 2), ("attempt", 12), ("attempt", 1, 3), ("wait",)]
    children = [context.named_child(*name) for name in names]
    assert len({child.span for child in children}) == len(names)
    assert children[0] == TraceContext(TRACE, SPAN).named_child("attempt", 1, 2)
    assert all(read_traceparent(child.header) == child for child in children)


_INSTANTS = st.floats(-1e6, 2e9)
_SECONDS = st.floats(0, 1e7)


@given(
    st.builds(
        AttemptTimes, _INSTANTS, _INSTANTS, _INSTANTS, _INSTANTS, _INSTANTS, _SECONDS, _SECONDS, _SECONDS
    )
)
def test_stages_follow_one_another_whatever_clocks_say(times: AttemptTimes) -> None:
    stages = stages_of(times)
    assert stages[0].begin == times.waiting
    assert all(stage.begin <= stage.end for stage in stages)
    assert all(one.end == following.begin for one, following in pairwise(stages))
    assert stages[-1].end == max(times.waiting, times.applied)


def test_durations_of_the_pilot_are_laid_back_from_the_end() -> None:
    times = AttemptTimes(0, 10, 11, 100, 100.5, download=5, payload=60, upload=4)
    spans = {stage.name: (stage.begin, stage.end) for stage in stages_of(times)}
    assert spans == {
        "wait": (0, 10),
        "match": (10, 11),
        "start": (11, 31),
        "download": (31, 36),
        "payload": (36, 96),
        "upload": (96, 100),
        "finish": (100, 100.5),
    }
