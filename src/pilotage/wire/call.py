"""A row of the table of API calls: method, address, messages, and who may send it.

    BAN_USER = ApiCall("POST", "/v1/bans", BanRequest, BanSummary, PERSON)

A call stands in the module of its messages. The server makes its route of it, the client its method, and the reference
pages their rows, so that an address stands in one place.
"""

from __future__ import annotations

import re
from typing import Any, Dict, FrozenSet, Generic, List, Optional, Type, TypeVar
from urllib.parse import quote

Request = TypeVar("Request", covariant=True)
Answer = TypeVar("Answer", covariant=True)

Nothing = type(None)
"""The answer of a call that returns none."""

_PART = re.compile(r"\{(\w+)(?::path)?\}")


class NoRequest:
    """The request of a call that needs no body, and no query that a client builds from a class."""


class Access:
    """The senders that a call accepts. Rights on single objects, such as the jobs of one owner, are checked later."""

    def __init__(
        self, meaning: str, properties: Optional[FrozenSet[str]] = None, *, token: bool = True
    ) -> None:
        self.meaning = meaning
        """For the documents: "anybody", "NORMAL_USER" ..."""
        self.properties = properties
        """The group needs one of these properties, or ADMINISTRATOR. None: every person with a token."""
        self.token = token
        """False: no token is needed."""


def _with(*properties: str) -> Access:
    return Access(" or ".join(properties or ("ADMINISTRATOR",)), frozenset(properties))


ANYBODY = Access("anybody, without a token", token=False)
PERSON = Access("every user")
ENROLLING = Access("a pilot with the secret of its submission, without a token", token=False)
PILOT = Access("the pilot that has the job")
USER = _with("NORMAL_USER")
JOBS = _with("NORMAL_USER", "JOB_ADMINISTRATOR")
DATA = _with("NORMAL_USER", "PRODUCTION_MANAGEMENT")
PRODUCTION = _with("PRODUCTION_MANAGEMENT")
AGENTS = _with("AGENT")
ADMINISTRATORS = _with()


class ApiCall(Generic[Request, Answer]):
    """A call of the HTTP API.

    `request` is the class of its body, or of the query of a GET. `answer` is `bytes` if the answer is not JSON.
    `repeatable`: a POST that may be sent again after a lost answer; every other method may.
    """

    def __init__(
        self,
        method: str,
        path: str,
        request: Request,
        answer: Type[Answer],
        access: Access,
        *,
        status: int = 200,
        repeatable: bool = False,
    ) -> None:
        self.method = method
        self.path = path
        """With the names of its parts: /v1/jobs/{job}."""
        self.request = request
        self.answer = answer
        self.access = access
        self.status = status
        self.repeatable = repeatable or method != "POST"

    @property
    def key(self) -> str:
        """The call as one text: POST /v1/bans."""
        return f"{self.method} {self.path}"

    @property
    def has_query(self) -> bool:
        """Whether `request` is the query, and not the body."""
        return self.method == "GET" and self.request is not NoRequest

    @property
    def parts(self) -> List[str]:
        """The names of the parts of the address."""
        return _PART.findall(self.path)

    def address(self, **parts: object) -> str:
        """The path with the values of its parts."""
        return _PART.sub(lambda part: quote(str(parts[part[1]])), self.path)


def all_calls() -> Dict[str, ApiCall[Any, Any]]:
    """The table: every call of every module of `wire`, by its key. It imports all of them."""
    import importlib
    import pkgutil

    import pilotage.wire

    calls = {}
    for module in pkgutil.iter_modules(pilotage.wire.__path__):
        for member in vars(importlib.import_module(f"pilotage.wire.{module.name}")).values():
            if isinstance(member, ApiCall):
                calls[member.key] = member
    return calls
