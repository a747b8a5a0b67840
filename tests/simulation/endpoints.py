"""What the server does at a call of its API."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

from pilotage.server.context import Context
from pilotage.server.http.routes import agents, datasets, requests
from pilotage.server.tokens import Caller
from pilotage.wire.call import ApiCall


@cache
def _handlers() -> dict[tuple[str, str], Any]:
    return {
        (method, route.path): route.endpoint  # type: ignore[attr-defined]
        for router in (agents.router, datasets.router, requests.router)
        for route in router.routes
        for method in route.methods  # type: ignore[attr-defined]
    }


async def carry_out(
    call: ApiCall[Any, Any], body: object, context: Context, who: Caller, /, **parts: int
) -> Any:
    """Serve a call, without HTTP. `body`: its body, or its query; None: it has neither."""
    given = [*parts.values(), *([] if body is None else [body]), context, who]
    result = _handlers()[call.method, call.path](*given)
    return await result if inspect.isawaitable(result) else result
