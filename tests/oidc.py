"""A real OpenID Connect provider for tests: the npm library `oidc-provider`, in a folder of its own on a free port.

The library is installed once, into a folder of the user's cache, which all tests share. It needs node 20 and npm.
`PILOTAGE_TEST_REQUIRE=oidc` turns skips into failures.
"""

from __future__ import annotations

import contextlib
import fcntl
import html
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import urljoin

import httpx

from tests.batch_daemons import skip_or_fail
from tests.deadlines import PATIENCE
from tests.ports import free_port

PACKAGE = "oidc-provider@9"
AUDIENCE = "https://pilotage.example.org"
CLIENT = "cli"
SERVICE, SERVICE_SECRET = "service", "a secret of the tests"
USERS = {
    "alice": {"groups": ["/exp", "/exp/analysis"]},
    "bob": {"groups": ["/exp"]},
    "carol": {"groups": ["/exp"]},
    "eve": {"groups": []},
    SERVICE: {"groups": ["/exp/analysis", "/exp/production"]},
}
WEB, WEB_SECRET = "web", "another secret of the tests"
WEB_POLICY = """
[issuers.iam]
url = "{url}"
web_client = "{client}"
web_secret_file = "{secret}"
web_address = "{address}"
scopes = ["openid"]
[issuers.iam.groups]
"/exp/analysis" = "others"
"""
"""The issuer in a policy, for sign-in with a browser."""
_CLIENTS: list[dict[str, object]] = [
    {
        "client_id": CLIENT,
        "token_endpoint_auth_method": "none",
        "application_type": "native",
        "redirect_uris": [],
        "response_types": [],
        "grant_types": ["urn:ietf:params:oauth:grant-type:device_code", "refresh_token"],
    },
    {
        "client_id": SERVICE,
        "client_secret": SERVICE_SECRET,
        "redirect_uris": [],
        "response_types": [],
        "grant_types": ["client_credentials"],
    },
]


@cache
def modules() -> tuple[Path, str]:
    """The folder with the library, and why there is none."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(caches) / "pilotage-tests" / "oidc-provider-9"
    if not shutil.which("node") or not shutil.which("npm"):
        return folder, "node and npm are not installed"
    folder.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        # One process of the tests installs it; the others wait.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "complete").exists():
            return folder, ""
        (folder / "package.json").write_text('{"private": true}')
        command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", PACKAGE]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=5 * PATIENCE, check=False
        )
        if done.returncode:
            return folder, f"{PACKAGE} cannot be installed: {done.stderr.strip()[-300:]}"
        (folder / "complete").touch()
    return folder, ""


class OidcProvider:
    """One provider. Its keys and sign-ins are lost when it stops."""

    def __init__(self, folder: Path, modules: Path) -> None:
        self.folder, self._modules = folder, modules
        self.url = f"http://127.0.0.1:{free_port()}"
        self.redirects: list[str] = []
        """Redirect URIs of the client of the pages; read at a start."""
        self._process: subprocess.Popen[str] | None = None
        self._starts = 0

    def start(self) -> None:
        self._starts += 1
        config = {
            "issuer": self.url,
            "audience": AUDIENCE,
            "users": USERS,
            "clients": [*_CLIENTS, *self._web_clients()],
            "kid": f"key {self._starts}",
        }
        (self.folder / "config.json").write_text(json.dumps(config))
        program = Path(__file__).with_name("oidc_provider.mjs")
        with (self.folder / "oidc.log").open("a") as log:
            self._process = subprocess.Popen(
                ["node", str(program), str(self._modules), str(self.folder / "config.json")],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", (self.folder / "oidc.log").read_text()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate(timeout=PATIENCE)
            self._process = None

    def _web_clients(self) -> list[dict[str, object]]:
        if not self.redirects:
            return []
        return [
            {
                "client_id": WEB,
                "client_secret": WEB_SECRET,
                "redirect_uris": self.redirects,
                "response_types": ["code"],
                "grant_types": ["authorization_code"],
            }
        ]

    def service_token(self, scope: str = "") -> str:
        """An access token of a program, which is no person."""
        form = {"grant_type": "client_credentials", "scope": scope}
        answer = httpx.post(f"{self.url}/token", data=form, auth=(SERVICE, SERVICE_SECRET), timeout=PATIENCE)
        return str(answer.raise_for_status().json()["access_token"])


def approve(
    address: str, user: str, *, refuse: bool = False, browser: httpx.Client | None = None
) -> httpx.Response:
    """Play the browser of a person: open the address, fill in every form, and send it. Returns the last page."""
    with contextlib.ExitStack() as stack:
        browser = browser or stack.enter_context(httpx.Client(follow_redirects=True, timeout=PATIENCE))
        page = browser.get(address)
        for _ in range(10):
            form = re.search(r'<form[^>]*action="([^"]+)"[^>]*>(.*?)</form>', page.text, re.DOTALL)
            if form is None or page.is_error:
                return page
            fields = {
                name[1]: html.unescape(value[1]) if (value := re.search(r'value="([^"]*)"', tag)) else ""
                for tag in re.findall(r"<input[^>]*>", form[2])
                if (name := re.search(r'name="([^"]*)"', tag))
            }
            if "login" in fields:
                fields |= {"login": user, "password": "any"}
            if refuse and "confirm" in fields:
                del fields["confirm"]
                fields["abort"] = "yes"
            page = browser.post(urljoin(str(page.url), html.unescape(form[1])), data=fields)
    return page


@contextmanager
def provider(folder: Path) -> Iterator[OidcProvider]:
    """A provider that runs; the test is skipped where there is none."""
    installed, reason = modules()
    if reason:
        skip_or_fail(reason, "oidc")
    made = OidcProvider(folder, installed)
    made.start()
    try:
        yield made
    finally:
        made.stop()
