"""The registry of pages.

pages = PageRouter(menu="Shares", order=4)

@pages.get("/shares")
async def shares(visit: Visit) -> Response:
    return await visit.render("shares.html", table=await visit.ask(LIST_SHARES))
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules

from starlette.responses import Response

Handler = Callable[..., Awaitable[Response]]
"""Takes a `Visit`, and the parts of the address by their names."""


@dataclass(frozen=True, slots=True)
class PageAddress:
    """One address, and the function that answers for it."""

    method: str
    path: str
    handler: Handler
    open: bool
    """Whether it is answered without sign-in."""


class PageRouter:
    """The addresses of one module of `pages`."""

    def __init__(self, *, menu: str = "", order: int = 0, administrators: bool = False) -> None:
        """`menu`: the words in the menu for its first address; empty: it has no place there. `order`: of the menu.

        `administrators`: only their menu has it. Its API calls check the rights.
        """
        self.menu = menu
        self.administrators = administrators
        self.order = order
        self.addresses: list[PageAddress] = []

    def get(self, path: str, *, open: bool = False) -> Callable[[Handler], Handler]:
        """The decorated function shows a page. `open`: without sign-in."""
        return self._register("GET", path, open)

    def post(self, path: str, *, open: bool = False) -> Callable[[Handler], Handler]:
        """The decorated function takes a form, which was checked to come from our own pages."""
        return self._register("POST", path, open)

    def _register(self, method: str, path: str, open: bool) -> Callable[[Handler], Handler]:
        def register(handler: Handler) -> Handler:
            self.addresses.append(PageAddress(method, path, handler, open))
            return handler

        return register


def page_routers() -> Iterator[PageRouter]:
    """The routers of all modules of `pages`."""
    from pilotage.server.web import pages

    for module in iter_modules(pages.__path__):
        yield import_module(f"{pages.__name__}.{module.name}").pages
