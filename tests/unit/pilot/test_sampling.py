"""Payloads are looked at early enough, and short ones not at all."""

from __future__ import annotations

import math

from pilotage.pilot.sampling import MAX_INTERVAL, MIN_INTERVAL, Sampling


def test_nothing_is_looked_at_while_nothing_runs() -> None:
    assert Sampling().next_at == math.inf


def test_a_payload_is_looked_at_when_it_has_run_for_a_while() -> None:
    sampling = Sampling()
    sampling.on_payload_started(10.0)
    assert sampling.next_at == 10.0 + MIN_INTERVAL
    assert not sampling.is_due(10.0 + MIN_INTERVAL / 2, 10.0)
    assert sampling.is_due(10.0 + MIN_INTERVAL, 10.0)


def test_short_payloads_one_after_another_are_never_looked_at() -> None:
    sampling = Sampling()
    for step in range(1000):
        now = 10.0 + 0.001 * step
        sampling.on_payload_started(now)
        assert not sampling.is_due(now + 0.001, now)


def test_a_payload_that_follows_a_short_one_is_looked_at_when_it_is_old_enough_itself() -> None:
    sampling = Sampling()
    sampling.on_payload_started(10.0)
    sampling.on_payload_started(10.05)  # the first one has ended
    assert not sampling.is_due(10.0 + MIN_INTERVAL, 10.05)
    assert sampling.next_at == 10.05 + MIN_INTERVAL
    assert sampling.is_due(10.05 + MIN_INTERVAL, 10.05)


def test_a_long_payload_beside_short_ones_is_sampled() -> None:
    sampling = Sampling()
    sampling.on_payload_started(10.0)
    for step in range(1, 100):
        sampling.on_payload_started(10.0 + 0.001 * step)
    assert sampling.is_due(10.0 + MIN_INTERVAL, 10.0)


def test_looks_follow_each_other_less_closely_with_time_and_with_their_cost() -> None:
    sampling = Sampling()
    sampling.record_sample(10.1, 10.1, oldest=10.0)
    assert math.isclose(sampling.next_at, 10.3)
    sampling.record_sample(20.0, 20.0, oldest=10.0)
    assert sampling.next_at == 20.0 + MAX_INTERVAL
    sampling.record_sample(20.0, 20.1, oldest=10.0)
    assert math.isclose(sampling.next_at, 25.1)
