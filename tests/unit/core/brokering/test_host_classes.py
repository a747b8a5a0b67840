"""Host classes: every host is counted once, and the common denominator holds for each of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.brokering.host_classes import MOST_CLASSES, MOST_NAMES, Host, flattened, group_hosts
from pilotage.core.glue.information import HostClass, Value

VALUES: st.SearchStrategy[Value] = (
    st.integers(-3, 3) | st.booleans() | st.sampled_from([0.0, 1.0, 1.5, "a", "b", (), ("x",), ("x", "y")])
)
HOSTS = st.lists(st.dictionaries(st.sampled_from(["A", "B", "C"]), VALUES), max_size=8)


@given(HOSTS)
def test_each_host_is_in_one_class_with_its_own_values(drawn: list[dict[str, Value]]) -> None:
    classes = group_hosts(Host(f"h{number}", attributes) for number, attributes in enumerate(drawn))
    assert sum(known.count for known in classes) == len(drawn)
    for known in classes:
        assert len(known.hosts) == known.count
        for name in known.hosts:
            own = drawn[int(name[1:])]
            assert own == known.attributes
            assert all(type(own[key]) is type(value) for key, value in known.attributes.items())


@given(HOSTS)
def test_the_common_denominator_is_the_least_value_of_all(drawn: list[dict[str, Value]]) -> None:
    classes = [HostClass(1, attributes) for attributes in drawn]
    least = flattened(classes)
    for name, value in least.items():
        values = [attributes[name] for attributes in drawn]
        if isinstance(value, tuple):
            assert all(isinstance(other, tuple) and set(value) <= set(other) for other in values)
        elif isinstance(value, str):
            assert set(values) == {value}
        else:
            assert value in values
            assert all(value <= other for other in values)  # type: ignore[operator]
    for name in set.intersection(*map(set, drawn)) if drawn else set():
        kinds = {type(attributes[name]) for attributes in drawn}
        assert name in least or len(kinds) > 1 or str in kinds


def test_numbers_of_classes_and_names_are_bounded() -> None:
    many = [Host(f"h{number}", {"Memory": 1, "Rack": number}) for number in range(MOST_CLASSES + 1)]
    [only] = group_hosts(many, details=("Rack",))
    assert (only.count, only.attributes) == (MOST_CLASSES + 1, {"Memory": 1})
    assert group_hosts(many) == (only,)
    [crowd] = group_hosts(Host(f"h{number}", {}) for number in range(MOST_NAMES + 1))
    assert (crowd.count, crowd.hosts) == (MOST_NAMES + 1, ())


def test_with_too_many_classes_the_most_varied_attributes_are_unknown_everywhere() -> None:
    hosts = [
        Host(
            f"h{number}", {"Speed": number % 3, "Memory": number, "Rack": number % 40, "Shelf": number % 601}
        )
        for number in range(1000)
    ]
    classes = group_hosts(hosts)
    assert len(classes) == 120
    assert all(known.attributes.keys() == {"Speed", "Rack"} for known in classes)
    assert sorted(name for known in classes for name in known.hosts) == sorted(host.name for host in hosts)
    for known in classes:
        for name in known.hosts:
            assert known.attributes.items() <= hosts[int(name[1:])].attributes.items()
    coarser = group_hosts(hosts, details=("Speed", "Rack"))
    assert [known.attributes for known in coarser] == [{}], "details are left out before others"
