"""Who is closed when there are too many connections."""

from __future__ import annotations

from pilotage.server.context import ConnectionCounts
from pilotage.server.http.admission import Admission
from pilotage.server.http.connection_limits import ConnectionCapacity


class _Peer:
    def __init__(self, address: str = "a") -> None:
        self.address = address
        self.is_idle = True
        self.evicted = False

    def evict(self) -> None:
        self.evicted = True


def _joined(admission: Admission, count: int, address: str = "a") -> list[_Peer]:
    peers = [_Peer(address) for _ in range(count)]
    assert all(admission.join(peer) for peer in peers)
    return peers


def _places_of_evicted(peers: list[_Peer]) -> list[int]:
    return [place for place, peer in enumerate(peers) if peer.evicted]


def test_too_many_connections_of_one_address_close_its_oldest() -> None:
    admission = Admission(ConnectionCapacity(max_connections=100, per_address=3), ConnectionCounts())
    [other] = _joined(admission, 1, "b")
    peers = _joined(admission, 5)
    assert _places_of_evicted(peers) == [0, 1]
    assert not other.evicted
    assert admission.total == 4


def test_trusted_connections_do_not_count_for_their_address() -> None:
    admission = Admission(ConnectionCapacity(max_connections=100, per_address=3), ConnectionCounts())
    pilots = _joined(admission, 3)
    for pilot in pilots:
        admission.mark_trusted(pilot)
    assert not _places_of_evicted(_joined(admission, 3))
    assert not _places_of_evicted(pilots)


def test_a_connection_with_a_request_under_way_is_not_closed() -> None:
    admission = Admission(ConnectionCapacity(max_connections=3, per_address=2), ConnectionCounts())
    first, second = _joined(admission, 2)
    admission.mark_busy(first)
    _joined(admission, 2)
    assert not first.evicted
    assert second.evicted
    admission.mark_idle(first)
    [last] = _joined(admission, 1, "b")
    assert not last.evicted
    assert admission.total == 3


def test_a_full_server_closes_strangers_first_then_trusted_ones_that_wait() -> None:
    admission = Admission(ConnectionCapacity(max_connections=4, per_address=10), ConnectionCounts())
    pilots = _joined(admission, 2)
    strangers = _joined(admission, 2)
    for pilot in pilots:
        admission.mark_trusted(pilot)
    newcomers = _joined(admission, 2, "b")
    assert _places_of_evicted(strangers) == [0, 1]
    for newcomer in newcomers:
        admission.mark_trusted(newcomer)
    pilots[0].is_idle = False
    _joined(admission, 1)
    assert _places_of_evicted(pilots) == [1]


def test_a_server_full_of_work_refuses() -> None:
    admission = Admission(ConnectionCapacity(max_connections=2, per_address=10), ConnectionCounts())
    for peer in _joined(admission, 2):
        peer.is_idle = False
        admission.mark_busy(peer)
    late = _Peer()
    assert not admission.join(late)
    admission.mark_trusted(late)
    admission.leave(late)
    assert admission.total == 2
    assert admission.counts.refused == 1


def test_a_connection_that_leaves_is_forgotten() -> None:
    admission = Admission(ConnectionCapacity(), ConnectionCounts())
    for peer in _joined(admission, 10):
        admission.mark_trusted(peer)
        admission.leave(peer)
        admission.leave(peer)
        admission.mark_idle(peer)
    assert admission.total == 0
    assert not admission._idle
    assert not admission._by_address


def test_the_newest_connection_is_not_the_one_that_is_closed() -> None:
    admission = Admission(ConnectionCapacity(max_connections=64, per_address=100), ConnectionCounts())
    pilots = _joined(admission, 64)
    for pilot in pilots:
        admission.mark_trusted(pilot)
    people = _joined(admission, 8, "b")
    assert not _places_of_evicted(people)
    assert _places_of_evicted(pilots) == list(range(8))
    later = _joined(admission, 100, "c")
    assert not any(peer.evicted for peer in later[-8:])
    assert sum(pilot.evicted for pilot in pilots) <= 9
    assert admission.total == 64
    assert admission.counts.evicted == 108


def test_a_server_full_of_busy_pilots_keeps_the_newest_as_long_as_it_can() -> None:
    admission = Admission(ConnectionCapacity(max_connections=64, per_address=100), ConnectionCounts())
    for pilot in _joined(admission, 62):
        admission.mark_trusted(pilot)
        pilot.is_idle = False
    people = _joined(admission, 4)
    assert _places_of_evicted(people) == [0, 1]
