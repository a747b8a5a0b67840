"""All pages of one server, as routes beside the API."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import cast

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pilotage.core.errors import Forbidden, NotAuthenticated, NotFound, PilotageError
from pilotage.server.context import Context
from pilotage.server.errors import error_answer
from pilotage.server.feed.open_pages import OpenPages
from pilotage.server.http.routing import build_routes
from pilotage.server.tokens import Caller
from pilotage.server.web.api_answers import ApiAnswers
from pilotage.server.web.assets import KEPT, Assets
from pilotage.server.web.forms import read_form
from pilotage.server.web.page import PageAddress, page_routers
from pilotage.server.web.rendering import HEADERS, make_templates
from pilotage.server.web.visit import Visit


class WebSite:
    """The objects that the pages of one server share."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.api = ApiAnswers(context)
        self.assets = Assets()
        self.templates = make_templates(self.assets)
        self.open_pages = OpenPages(context.duties.feed, context.quick_read, context.monotonic, context.stop)
        routers = list(page_routers())
        self._listed = sorted((router for router in routers if router.menu), key=lambda router: router.order)
        self._addresses = [address for router in routers for address in router.addresses]

    def menu(self, caller: Caller | None) -> list[tuple[str, str]]:
        """The words and addresses of the menu of a user."""
        everything = caller is not None and caller.administrator
        return [
            (router.menu, router.addresses[0].path.lstrip("/"))
            for router in self._listed
            if everything or not router.administrators
        ]

    def routes(self) -> list[Route]:
        """The routes of all pages, and of the files that they load."""
        static = Route("/static/{name}", self._send_asset, methods=["GET"])
        return [
            static,
            *(
                Route(address.path, self._endpoint(address), methods=[address.method])
                for address in self._addresses
            ),
        ]

    async def _send_asset(self, request: Request) -> Response:
        asset = self.assets.find(request.path_params["name"])
        if asset is None:
            return JSONResponse({"code": "not-found"}, 404, HEADERS)
        return Response(asset.data, headers={**HEADERS, **KEPT}, media_type=asset.media_type)

    async def nothing_here(self, request: Request) -> Response:
        """The page for an address that no page has."""
        visit = Visit(self, request)
        with contextlib.suppress(NotAuthenticated, Forbidden):
            visit.sign_in(idle=True)
        return await _error_page(visit, NotFound("there is no such page"))

    def _endpoint(self, address: PageAddress) -> Callable[[Request], Awaitable[Response]]:
        tokens = self.context.tokens

        async def serve(request: Request) -> Response:
            visit = Visit(self, request)
            try:
                visit.sent = await read_form(request)
                await self.context.follow_rules()
                if not address.open:
                    visit.sign_in()
                    await tokens.session_file.write_uses(tokens.sessions, self.context.clock())
                if address.method == "POST":
                    visit.check_origin()
                return await address.handler(visit, **request.path_params)
            except ClientDisconnect:
                raise  # nobody waits for a page, as with calls of the API
            except NotAuthenticated:
                if address.open:
                    raise
                return visit.redirect_to_sign_in()
            except Exception as error:
                return await _error_page(visit, error)

        return serve


async def _error_page(visit: Visit, error: Exception) -> Response:
    """The page of an error. An unexpected one is logged, and told without its details."""
    _, status, _ = error_answer(error)
    if not isinstance(error, PilotageError):
        error = PilotageError("the server met an error of its own", hint="its log has the details")
    return await visit.render("error.html", status, error=error)


def build_with_pages(context: Context) -> FastAPI:
    """The routes of the API and of the pages."""
    api, site = build_routes(context), WebSite(context)
    api.router.routes.extend(site.routes())
    answer = api.exception_handlers[HTTPException]

    async def page_or_answer(request: Request, error: Exception) -> Response:
        """A page for a person who has mistaken an address, and the answer of the API for programs."""
        given = await cast("Awaitable[Response]", answer(request, error))
        asks_for_page = "text/html" in request.headers.get("accept", "")
        if given.status_code != 404 or not asks_for_page or request.url.path.startswith("/v1/"):
            return given
        return await site.nothing_here(request)

    api.add_exception_handler(HTTPException, page_or_answer)
    return api
