"""Answers of Rucio 41.5.1 by method and path, for the adapter in place of a server."""

from __future__ import annotations

import json
from typing import Any

import httpx

from pilotage.core.policy.catalogue_model import CataloguePlace
from pilotage.core.policy.catalogue_types.rucio import RucioOptions
from pilotage.outside.catalogue.rucio.adapter import RucioCatalogue
from pilotage.outside.catalogue.rucio.session import RucioSession

PROTOCOL = {
    **{"hostname": "se0.example.org", "scheme": "davs", "port": 443, "prefix": "/store/"},
    "domains": {
        "lan": {"read": 2, "write": 1, "delete": 1},
        "wan": {"read": 1, "write": 1, "delete": 1, "third_party_copy_read": None},
    },
    "extended_attributes": None,
}
ROOT = {**PROTOCOL, "scheme": "root", "port": 1094, "domains": {"lan": {"read": 1}, "wan": {"read": 0}}}
RSE = {
    **{"availability_read": True, "deterministic": True, "lfn2pfn_algorithm": "hash", "rse": "T1_SITE_A"},
    "protocols": [PROTOCOL, ROOT],
}


def did(name: str, kind: str = "DATASET", **more: object) -> dict[str, object]:
    return {"scope": "data26", "name": name, "type": kind, "bytes": None, **more}


class Rucio:
    """Answers by METHOD PATH: a value, a list of lines, or a response."""

    def __init__(self, options: RucioOptions, **places: CataloguePlace) -> None:
        self.answers: dict[str, Any] = {
            "GET /ping": {"version": "41.5.1"},
            "GET /auth/userpass": lambda request: httpx.Response(
                200, headers={"X-Rucio-Auth-Token": "secret-1"}
            ),
            "GET /auth/validate": httpx.Response(200, text="{'account': 'root'}"),
            "GET /rses/T1_SITE_A": RSE,
            "GET /rses/": [{"id": "0a1b", "rse": "T1_SITE_A"}],
        }
        self.requests: list[httpx.Request] = []
        session = RucioSession(options, httpx.MockTransport(self._answer))
        self.catalogue = RucioCatalogue(session, options, places or {"T1_SITE_A": CataloguePlace(site="a")})

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.get(f"{request.method} {request.url.raw_path.decode()}")
        if isinstance(answer, httpx.Response):
            return answer
        if callable(answer):
            made = answer(request)
            assert isinstance(made, httpx.Response)
            return made
        if isinstance(answer, list):
            lines = "".join(f"{json.dumps(row)}\n" for row in answer)
            return httpx.Response(200, text=lines, headers={"Content-Type": "application/x-json-stream"})
        return (
            refusal(404, "NotThere", f"{request.url} was not recorded")
            if answer is None
            else httpx.Response(200, json=answer)
        )


def refusal(status: int, exception: str, message: str) -> httpx.Response:
    return httpx.Response(status, json={"ExceptionClass": exception, "ExceptionMessage": message})


def lock(name: str, rse: str, state: str = "OK") -> dict[str, object]:
    return {"rse": rse, "scope": "data26", "name": name, "rule_id": "1", "account": "root", "state": state}


def replica(rse: str, available: int, length: int | None = 3) -> dict[str, object]:
    return {"rse": rse, "available_length": available, "length": length, "state": "AVAILABLE"}
