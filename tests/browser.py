"""Debian's browser for tests of pages, driven by playwright. As root on Debian it is installed.

The tests are skipped where either is absent; `PILOTAGE_TEST_REQUIRE=browser` turns skips into failures.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.batch_daemons import skip_or_fail
from tests.deadlines import PATIENCE
from tests.debian_packages import lacks

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

PROGRAM = "chromium-headless-shell"
SIZES = {"phone": (360, 740), "desk": (1280, 800), "wall": (3840, 2160)}


@contextmanager
def browser() -> Iterator[Browser]:
    """A running browser."""
    if lacks(PROGRAM):
        skip_or_fail(f"no {PROGRAM}: apt-get install {PROGRAM}", "browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        skip_or_fail("no playwright: it is in the group browser of pyproject.toml", "browser")
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=shutil.which(PROGRAM), args=options, timeout=PATIENCE * 1000
        )
        try:
            yield running
        finally:
            running.close()


@contextmanager
def signed_in(running: Browser, address: str, **options: Any) -> Iterator[BrowserContext]:
    """A profile of the browser that has opened the address of `pilotage web`."""
    profile = running.new_context(**options)
    profile.set_default_timeout(PATIENCE * 1000)
    try:
        page = profile.new_page()
        page.goto(address)
        page.close()
        yield profile
    finally:
        profile.close()
