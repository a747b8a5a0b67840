"""Every route as every sender: it accepts the senders of its entry in the table, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pilotage.core.errors import NotFound
from pilotage.core.policy.model import ADMINISTRATOR, PROPERTIES
from pilotage.server.http.pilot_endpoints import ENDPOINTS
from pilotage.wire.call import PILOT, ApiCall, all_calls
from tests.deadlines import PATIENCE
from tests.instance import Instance, running, until

pytestmark = pytest.mark.slow

ALONE = tuple(sorted(PROPERTIES))
"""Properties, each of which one user has alone."""


REQUEST: dict[str, Any] = {
    "name": "waits",
    "team": "nobody",
    "events": 1000,
    "program": {"executable": "/bin/true"},
    "splitting": {"algorithm": "EventBased", "events_per_job": 100},
}


def group_of(right: str) -> str:
    return right.lower().replace("_", "-")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    people = "[groups.plain]\nproperties = []\n[users.plain]\ngroups = ['plain']\n"
    for right in ALONE:
        name = group_of(right)
        people += f"[groups.{name}]\nproperties = ['{right}']\n[users.{name}]\ngroups = ['{name}']\n"
    with running(tmp_path_factory.mktemp("access"), owners="any") as instance:
        instance.policy += people
        instance.apply()
        yield instance


ROUTES = [call for call in all_calls().values() if call.path not in ENDPOINTS]


def address(call: ApiCall[Any, Any]) -> str:
    """The address of a call, with a value for each part of the path."""
    values = {"digest": "a" * 64, "verb": "kill", "stream": "stdout", "name": "x"}
    return call.address(**dict.fromkeys(re.findall(r"\{(\w+)", call.path), "999") | values)


def test_every_route_accepts_the_senders_of_its_entry_alone(server: Instance) -> None:
    senders: dict[str, tuple[str, frozenset[str]]] = {
        right: (server.client().create_token(group_of(right)).token, frozenset({right})) for right in ALONE
    }
    senders["no property"] = (server.client().create_token("plain").token, frozenset())
    wrong: list[str] = []
    with httpx.Client(base_url=server.client().url, timeout=PATIENCE) as http:
        for call in ROUTES:
            method, access, place = call.method, call.access, address(call)
            for name, (token, rights) in {"nobody": ("", frozenset[str]()), **senders}.items():
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                # The body is no JSON: rights are checked before it is read, and nothing is changed.
                body = b"{" if method in ("POST", "PUT") else b""
                answer = http.request(method, place, content=body, headers=headers)
                if not access.token:
                    expected = answer.status_code not in (401, 403)
                elif access is PILOT or not token:
                    expected = answer.status_code == 401
                elif access.properties is None or rights & (access.properties | {ADMINISTRATOR}):
                    expected = "needs the property" not in answer.text and answer.status_code != 401
                else:
                    expected = answer.status_code == 403 and "needs the property" in answer.text
                if not expected:
                    wrong.append(f"{call.key} as {name}: {answer.status_code} {answer.text[:100]}")
    assert not wrong, "\n".join(wrong)


def test_production_managers_are_told_why_requests_of_others_wait(server: Instance, tmp_path: Path) -> None:
    """Whoever may show, pause and abort a request may ask why it waits; its jobs stay hidden."""
    number = server.client().submit_request(REQUEST).request.id
    manager = server.client("production-management")
    assert manager.why_request(number).request == number
    [element, *_] = until(lambda: list(manager.request_elements(number)), what="elements")
    assert manager.why_element(element.id).element == element.id
    plain = server.client("plain")
    with pytest.raises(NotFound, match="there is no request"):
        plain.why_request(number)
    with pytest.raises(NotFound, match="there is no element"):
        plain.why_element(element.id)
    token = tmp_path / "token"
    token.write_text(server.client().create_token("production-management").token)
    token.chmod(0o600)
    told = server.cli("status", "--request", str(number), "--token-file", str(token))
    assert "jobs of others are not shown" in told.stderr, told
    assert "not shown" not in server.cli("status", "--request", str(number)).stderr
    manager.abort_request(number)


def test_an_agents_token_submits_no_program(server: Instance) -> None:
    with pytest.raises(Exception, match="may not do this") as refused:
        server.client("agent").submit({"executable": "true"})
    assert "NORMAL_USER" in getattr(refused.value, "hint", "")
