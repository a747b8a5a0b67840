"""Requests drawn from the OpenAPI document, sent to a real server by nobody, a plain user and an administrator.

`PILOTAGE_API_CASES=5000 pytest tests/acceptance/test_openapi.py` sends so many; PILOTAGE_API_SEED draws others.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.deadlines import PATIENCE
from tests.instance import Instance, running

CASES = int(os.environ.get("PILOTAGE_API_CASES", "900"))
SEED = int(os.environ.get("PILOTAGE_API_SEED", "1"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(PATIENCE + CASES // 5)]

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
)
NEVER_IN_FORCE = 2**62
"""A version of the policy that does not exist: a change that expects it is checked, and then refused."""

SENT: Counter[str] = Counter()


class Api:
    """A server with something to see, and its document."""

    def __init__(self, pool: Instance) -> None:
        # Its import takes two seconds of a processor: only the worker that runs this module needs it.
        import schemathesis

        self.pool = pool
        owner = pool.client()
        self.url = owner.url
        self.tokens = {
            "nobody": "",
            "user": owner.create_token("alice").token,
            "administrator": (pool.home / "token").read_text().strip(),
        }
        self.schema = schemathesis.openapi.from_url(f"{self.url}/openapi.json")
        alice = pool.client("alice")
        done = owner.submit({"executable": "echo", "arguments": ["a"]}).first
        pool.reaches(done, "Done")
        waiting = alice.submit({"executable": "true", "tags": ["nowhere"]}, values=[1, 2, 3])
        queue = alice.job(waiting.first).job.queue
        self.known: dict[str, list[Any]] = {
            "job": [done, waiting.first],
            "id_": [waiting.submission],
            "queue": [queue],
            "version": [1],
            "stream": ["stdout", "stderr"],
            "verb": ["kill", "reschedule", "delete"],
            "name": ["stdout"],
            "number": [0],
            "epoch": [1],
            "digest": ["0" * 64],
        }


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("api"), owners="any", processors=1) as pool:
        yield Api(pool)
        print(f"requests sent: {dict(SENT)}, {SENT.total()} in all")
        assert pool.process is not None
        assert pool.process.poll() is None, "the server still runs"
        log = pool.log()
        assert "Traceback" not in log, log[log.index("Traceback") :][:5000]


def harmless(identity: str, method: str, path: str, body: Any) -> bool:
    """Whether a request may be sent: what would end the server or change its policy is made to be refused at its end.

    Nobody and a plain user may try everything: that they are refused is part of the test.
    """
    if identity != "administrator":
        return True
    if path == "/v1/shutdown":
        return False  # Any valid body ends the server.
    if path in ("/v1/policy", "/v1/policy/rollback") and method != "get" and isinstance(body, dict):
        body["expect"] = NEVER_IN_FORCE
    return True


def cases(operation: Any) -> st.SearchStrategy[Any]:
    """Requests as the document has them, and such that break it where there is something to break."""
    valid: st.SearchStrategy[Any] = operation.as_strategy()
    if not (operation.body or operation.path_parameters or operation.query):
        return valid
    from schemathesis import GenerationMode

    return st.one_of(valid, operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))


@pytest.mark.parametrize("identity", ["nobody", "user", "administrator"])
def test_every_address_answers_as_it_declares(api: Api, identity: str) -> None:
    operations = [result.ok() for result in api.schema.get_all_operations()]
    assert len(operations) > 30
    each = max(1, CASES // (3 * len(operations)))
    headers = {"Authorization": f"Bearer {api.tokens[identity]}"} if api.tokens[identity] else {}
    from schemathesis import checks

    to_check = [getattr(checks, name) for name in CHECKS]
    failures: list[str] = []
    for operation in operations:

        @seed(SEED)
        @settings(
            max_examples=each,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=cases(operation), data=st.data())
        def send(case: Any, data: st.DataObject) -> None:
            for name in case.path_parameters or {}:
                if name in api.known and data.draw(st.integers(0, 3)):
                    case.path_parameters[name] = data.draw(st.sampled_from(api.known[name]))
            if not harmless(identity, case.method.lower(), case.path, case.body):
                return
            SENT[identity] += 1
            case.call_and_validate(headers=headers, checks=to_check, timeout=PATIENCE)

        try:
            send()
        except BaseException as failure:
            if isinstance(failure, KeyboardInterrupt):
                raise
            parts = failure.exceptions if isinstance(failure, BaseExceptionGroup) else [failure]
            failures += [f"{operation.method.upper()} {operation.path}: {part}" for part in parts]
    assert not failures, "\n\n".join(failures)
    assert SENT[identity] >= each


def test_every_number_text_and_list_that_can_be_sent_has_bounds(api: Api) -> None:
    document = api.schema.raw_schema
    without: list[str] = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            place = f"{method.upper()} {path}"
            for parameter in operation.get("parameters", ()):
                without += _unbounded(document, parameter["schema"], f"{place} {parameter['name']}")
            for content in operation.get("requestBody", {}).get("content", {}).values():
                without += _unbounded(document, content["schema"], place)
    assert without == []


def _unbounded(document: dict[str, Any], schema: dict[str, Any], place: str) -> Iterator[str]:
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for part in schema.get("anyOf", ()):
        yield from _unbounded(document, part, place)
    kind = schema.get("type")
    if kind in ("integer", "number") and not {"minimum", "maximum"} <= schema.keys():
        yield place
    if kind == "string" and "maxLength" not in schema and "enum" not in schema:
        yield place
    if kind == "array":
        if "maxItems" not in schema:
            yield place
        yield from _unbounded(document, schema["items"], f"{place} item")
    if kind == "object" and "properties" not in schema and "maxProperties" not in schema:
        yield place
    for name, member in schema.get("properties", {}).items():
        yield from _unbounded(document, member, f"{place} {name}")
