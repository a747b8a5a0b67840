"""Settings of submit pools: what CPUNormalization does to a CE, and what is refused or warned of."""

from __future__ import annotations

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import parse, warnings

POLICY = """\
[groups.physics]
[users.alice]
groups = ["physics"]
[sites.near]
[sites.far]
[ces.a]
site = "near"
type = "slurm"
owners = "any"
cpu_power = 2.0
[ces.b]
site = "far"
type = "slurm"
owners = "any"
pool = "Far"
tags = ["GPU"]
[director.pools.Batch]
"""
LINE = len(POLICY.splitlines()) + 1


@pytest.mark.parametrize(
    ("expression", "power"),
    [
        ("CPUPower", 2.0),
        ("", 2.0),
        ("CPUPower * 0.8", 1.6),
        ("1500 / 500.0", 3.0),
        ('ifThenElse(Site == "near" && GridCE == "a" && Middleware == "slurm", CPUPower / 4, 1)', 0.5),
        ("3", 3.0),
        ('member("GPU", Tags) ? 7.0 : 5.0', 5.0),
        ("ifThenElse(Memory is undefined, Processors * 4.0, 1)", 4.0),
    ],
)
def test_the_speed_of_a_core_follows_the_expression_of_its_pool(expression: str, power: float) -> None:
    policy = parse(f"{POLICY}CPUNormalization = '{expression}'\n")
    assert policy.ces["a"].cpu_power == pytest.approx(power)
    # Pool Far has no expression.
    assert policy.ces["b"].cpu_power == 1.0


@pytest.mark.parametrize(
    "expression",
    ["GlueHostBenchmarkSI00 / 500", '"2"', "true", "0", "-CPUPower", "1 / 0", "1e7", "random()", "time()"],
)
def test_an_expression_that_gives_a_ce_no_speed_is_refused_with_the_attributes(expression: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(f"{POLICY}CPUNormalization = '{expression}'\n")
    assert "gives no number from 1e-06 to 1e+06 for CE a" in refused.value.message
    assert "Site, GridCE" in refused.value.hint
    assert refused.value.line == LINE


@pytest.mark.parametrize(
    ("setting", "message", "hint"),
    [
        ("CPUNormalization = '1 +'", "pool Batch: CPUNormalization is no ClassAd expression", ""),
        ("Rank = '1 +'", "pool Batch: Rank is no ClassAd expression", ""),
        ("minThreadsInPool = 5", "pool Batch: minThreadsInPool is more than maxThreadsInPool (4)", ""),
        (
            'endpoints = ["wms1.org", "wms2.org"]',
            "pool Batch: no adapter of its CEs can use the endpoint wms1.org",
            "type slurm: Slurm's commands try every SlurmctldHost",
        ),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_with_its_line(
    setting: str, message: str, hint: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(f"{POLICY}{setting}\n")
    assert message in refused.value.message
    assert hint in refused.value.hint
    assert refused.value.line == LINE


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        ("minThreadsInPool = 2", "director.pools.Batch: minThreadsInPool has no effect"),
        ('Rank = "CPUTime"', "director.pools.Batch: Rank has no effect without EnableListMatch = true"),
        (
            '[director.pools.DIRAC]\nendpoints = ["wms"]\nmaxThreadsInPool = 9\nCPUNormalization = "2.0"',
            "director.pools.DIRAC: endpoints, maxThreadsInPool without effect: another director",
        ),
        (
            'handled = false\nRank = "CPUTime"\nminThreadsInPool = 1',
            "director.pools.Batch: minThreadsInPool, Rank without effect: another director",
        ),
    ],
)
def test_a_setting_without_effect_is_warned_of(settings: str, warning: str) -> None:
    def of_pools(text: str) -> list[str]:
        return [message for message in warnings(parse(text)) if "director.pools" in message]

    assert of_pools(POLICY) == []
    [message] = of_pools(f"{POLICY}{settings}\n")
    assert message.startswith(warning)
