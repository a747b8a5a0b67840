"""One request of a browser: who it is, its question, and the answer as a page."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from pilotage.core.errors import Forbidden, NotFound
from pilotage.server.context import Context
from pilotage.server.tokens import Caller
from pilotage.server.web.charts import Chart
from pilotage.server.web.forms import SentForm
from pilotage.server.web.rendering import HEADERS
from pilotage.server.web_sessions import WebSession, cookie_name
from pilotage.wire.call import ApiCall

if TYPE_CHECKING:
    from pilotage.server.web.site import WebSite

Answer = TypeVar("Answer")
_OWN_PAGE = re.compile(r"(?:[a-z]+(?:/[a-z0-9]+)*)?(?:\?[\w=&.%+~-]*)?")
"""An address of ours, relative to the first page: no other host can be named in it."""


class Visit:
    """One request."""

    def __init__(self, site: WebSite, request: Request) -> None:
        self._site = site
        self.request = request
        self.sent = SentForm()
        self.session: WebSession | None = None
        self.caller: Caller | None = None

    # --- who it is

    @property
    def context(self) -> Context:
        return self._site.context

    @property
    def site(self) -> WebSite:
        return self._site

    @property
    def cookie_name(self) -> str:
        return cookie_name(self.context.address.instance)

    def sign_in(self, *, idle: bool = False) -> Caller:
        """Find the session of the cookie. Raises NotAuthenticated or Forbidden.

        `idle`: it is no use of the session, which may end meanwhile.
        """
        context, state = self.context, self.request.scope["state"]
        key = self.request.cookies.get(self.cookie_name, "")

        def read(token: str) -> Caller:
            return context.tokens.issuer.read(token, context.pool.policy, context.clock())

        self.session, caller = context.tokens.sessions.find(key, read, context.clock(), idle=idle)
        self.caller = caller.at(self.request.scope.get("client"))
        state["identity"] = self.caller
        if "connection" in state:
            state["connection"].trust()
        return self.caller

    def check_origin(self) -> None:
        """Raise Forbidden for a form that is not of our own pages."""
        fetched_from = self.request.headers.get("sec-fetch-site", "")
        if fetched_from == "same-origin":
            return
        if self.session is None:
            # Without a session there is no token yet. Browsers that are too old for the field send none.
            if fetched_from in ("", "none"):
                return
        elif hmac.compare_digest(self.form.get("form_token", "").encode(), self.session.form_token.encode()):
            return
        raise Forbidden("this form does not come from a page of this server", hint="load the page again")

    async def start_session(self, caller: Caller, response: Response) -> None:
        """Sign the browser in. An earlier session of it ends."""
        context, now = self.context, self.context.clock()
        context.tokens.sessions.end(self.request.cookies.get(self.cookie_name, ""))
        session = context.tokens.sessions.begin(caller, context.tokens.issuer, now, context.pool.secrets)
        await context.tokens.session_file.write(context.tokens.sessions, now)
        self._set_cookie(response, self.cookie_name, session.key, "strict")

    def set_visit_cookie(self, response: Response, value: str) -> None:
        """Mark the browser that goes to an issuer. The cookie is lax: it comes along on the way back."""
        self._set_cookie(response, f"{self.cookie_name}_at", value, "lax")

    @property
    def visit_cookie(self) -> str:
        return self.request.cookies.get(f"{self.cookie_name}_at", "")

    def _set_cookie(
        self, response: Response, name: str, value: str, samesite: Literal["lax", "strict"]
    ) -> None:
        host = urlsplit(f"//{self.request.headers.get('host', '')}").hostname or ""
        secure = self.request.scope["scheme"] == "https" or not _is_this_machine(host)
        # Without a path it is for the pages below the address as the browser sees it, also behind a proxy.
        response.set_cookie(name, value, path=None, httponly=True, samesite=samesite, secure=secure)

    async def end_session(self, response: Response) -> None:
        tokens = self.context.tokens
        if self.session is not None:
            tokens.sessions.end(self.session.key)
            await tokens.session_file.write(tokens.sessions, self.context.clock())
        response.set_cookie(self.cookie_name, "", max_age=0, path=None, httponly=True, samesite="strict")

    # --- its question

    @property
    def form(self) -> Mapping[str, str]:
        """The fields of the form that was sent."""
        return self.sent.fields

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query_params

    def number(self, name: str) -> int:
        """A number of the query that is an id, or a place in a list; 0: it is none."""
        given = self.query.get(name, "")
        return int(given) if given.isascii() and given.isdigit() and len(given) < 19 else 0

    async def ask(self, call: ApiCall[Any, Answer], asked: object = None, **parts: object) -> Answer:
        """The answer of an API call, as the signed-in user would get it."""
        return await self._site.api.ask(self.request, call, asked, **parts)

    async def respond(self, call: ApiCall[Any, Any], asked: object = None, **parts: object) -> Any:
        """The answer of an API call as its function gives it: of large files a response."""
        return await self._site.api.respond(self.request, call, asked, **parts)

    # --- the answer

    @property
    def root(self) -> str:
        """The way from this page to the first one: all addresses are relative, so that a proxy may add a prefix."""
        return "../" * (self.request.scope["path"].count("/") - 1) or "./"

    @property
    def address(self) -> str:
        """The address of this page, relative to the first one."""
        path, query = (
            self.request.scope["path"].lstrip("/"),
            self.request.scope["query_string"].decode("ascii"),
        )
        return f"{path}?{query}" if query else path

    async def render_charts(self, template: str, *charts: Chart, **values: Any) -> Response:
        """The page with `charts` by their names; the numbers of one as CSV if the query names it."""
        asked = self.query.get("csv")
        if asked is None:
            return await self.render(template, charts={chart.name: chart for chart in charts}, **values)
        for chart in charts:
            if chart.name == asked:
                named = f'attachment; filename="{chart.name}.csv"'
                return Response(
                    chart.as_csv(), 200, {**HEADERS, "Content-Disposition": named}, media_type="text/csv"
                )
        raise NotFound("this page has no such chart")

    @property
    def csv_address(self) -> str:
        """The address of this page, to which the name of a chart is added for its CSV file."""
        return f"{self.address}{'&' if '?' in self.address else '?'}csv="

    async def render(self, template: str, status: int = 200, **values: Any) -> Response:
        """The page that a template makes of values. It is made in a thread: large ones take milliseconds."""
        shown = {
            "root": self.root,
            "menu": self._site.menu(self.caller),
            "csv_address": self.csv_address,
            "path": self.request.scope["path"],
            "caller": self.caller,
            "form_token": self.session.form_token if self.session else "",
            "instance": self.context.address.instance,
            "now": self.context.clock(),
            "notice": self.context.disk.space.low,
            "issuers": [
                name for name, issuer in self.context.pool.policy.issuers.items() if issuer.web_client
            ],
            **values,
        }
        page = await asyncio.to_thread(self._site.templates.get_template(template).render, shown)
        return HTMLResponse(page, status, HEADERS)

    def redirect(self, address: str) -> Response:
        """Send the browser to a page of ours; `address` is relative to the first page."""
        return Response(
            status_code=303, headers={**HEADERS, "Location": self.root + self.safe_address(address)}
        )

    def safe_address(self, address: str) -> str:
        """The address, if it is of a page of ours; empty: it is not."""
        return address if _OWN_PAGE.fullmatch(address) else ""

    def redirect_to_sign_in(self) -> Response:
        if self.request.method != "GET":
            return self.redirect("signin?ended=yes")
        return self.redirect(f"signin?next={quote(self.address, safe='')}" if self.address else "signin")


def _is_this_machine(host: str) -> bool:
    """Whether a name in an address of a browser is of its own machine, to which nobody else listens."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
