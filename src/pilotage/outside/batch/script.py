"""The batch script of a pilot: one shell script that carries the program, and needs nothing but Python 3.9."""

from __future__ import annotations

import base64
import hashlib
import io
import marshal
import shlex
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import MAGIC_NUMBER
from pathlib import Path

PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(14, 8, -1)))
"""Names of interpreters, tried in this order."""

_MAIN = "from pilotage.pilot.__main__ import main\n\nraise SystemExit(main())\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNPACK = """\
import sys
if sys.version_info < (3, 9): sys.exit(1)
import base64
open(3, "wb").write(base64.b64decode(sys.stdin.read()))"""
"""Writes the program to descriptor 3. A Python that is too old leaves the input to the next candidate."""
_FETCH = """\
import sys
if sys.version_info < (3, 9): sys.exit(1)
import hashlib, ssl, urllib.request
context = ssl._create_unverified_context()
for server in sys.argv[2:]:
    try: program = urllib.request.urlopen(server + "/v1/pilot.pyz", timeout=60, context=context).read()
    except OSError: continue
    if hashlib.sha256(program).hexdigest() == sys.argv[1]: sys.exit(open(3, "wb").write(program) < 1)
sys.exit(1)"""
"""Fetches the program to descriptor 3. Its digest decides, so that no certificate needs to be known before."""
_UNFETCHED = ", or no server with this version of the pilot,"
_NEVER_COMPARED = MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
"""The header of a compiled module that Python does not compare with its source (PEP 552)."""


@cache
def pilot_program(*, compiled: bool = False) -> bytes:
    """The pilot as a zip application: `pilotage.wire` and `pilotage.pilot`. The same bytes every time.

    `compiled`: also as this version of Python compiles it, so that a pilot starts in half of the time, from three
    times the bytes. Other versions of Python read the sources.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "__main__.py", _MAIN.encode())
        package = files("pilotage")
        _add(archive, "pilotage/__init__.py", (package / "__init__.py").read_bytes())
        for folder in ("wire", "pilot"):
            _add_folder(archive, f"pilotage/{folder}", package / folder, compiled)
    return buffer.getvalue()


def _add_folder(archive: zipfile.ZipFile, prefix: str, folder: Traversable, compiled: bool) -> None:
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        name = f"{prefix}/{item.name}"
        if item.is_dir() and item.name != "__pycache__":
            _add_folder(archive, name, item, compiled)
        elif item.name.endswith(".py"):
            _add(archive, name, item.read_bytes())
            if compiled and isinstance(item, Path):
                code = SourceFileLoader(item.stem, str(item)).get_code(item.stem)
                _add(archive, f"{name}c", _NEVER_COMPARED + marshal.dumps(code))


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True, slots=True)
class PilotSettings:
    """The settings of one pilot. The secret goes in over standard input only."""

    servers: tuple[str, ...]
    """Addresses; the pilot begins with the first one."""
    secret: str
    index: int
    processors: int
    memory: int
    stamp: str
    """Stands in the arguments of its process, so that a listing of processes finds it."""
    python: str = ""
    """Tried first; then the interpreters on the PATH."""
    workdir: str = ""
    index_variable: str = ""
    """Environment variable that holds the index of a pilot of an array, instead of `index`."""
    node_options: Mapping[str, str] = field(default_factory=dict)
    """The `BatchAdapter.pilot_options` of the batch system."""
    fingerprints: tuple[str, ...] = ()
    """Certificates of the server that the pilot accepts; none: a CA decides."""
    properties: str = ""
    """One word for listings of processes."""
    ca_file: str = ""
    """File on the node with the accepted CAs; empty: the system's."""
    proxy: str = ""
    """HTTP proxy of the node; empty: that of its environment."""


def _options(order: PilotSettings) -> list[str]:
    """The options of the pilot, except for its index and stamp."""
    options = [word for server in order.servers for word in ("--server", server)]
    options += [f"--fingerprint={fingerprint}" for fingerprint in order.fingerprints]
    if order.ca_file:
        options += ["--ca-file", order.ca_file]
    if order.processors:
        options += ["--processors", str(order.processors)]
    if order.memory:
        options += ["--memory", str(order.memory)]
    if order.workdir:
        options += ["--workdir", order.workdir]
    if order.properties:
        options.append(f"--properties={order.properties}")
    return options


def _proxy_lines(proxy: str) -> str:
    """Lines that set the variables of a proxy, in lower case as programs agree on. `no_proxy` stays the node's."""
    if not proxy:
        return ""
    quoted = shlex.quote(proxy)
    return f"unset HTTP_PROXY HTTPS_PROXY\nhttp_proxy={quoted} https_proxy={quoted}\nexport http_proxy https_proxy\n"


def render(program: bytes, order: PilotSettings) -> str:
    """A script for /bin/sh. Nothing secret stands in its arguments or environment.

    The program goes to a file that has no name any more when it is written: nobody can tamper with it, and nothing is
    left of it however the pilot ends.
    """
    encoded = base64.encodebytes(program).decode()
    return _script(order, [_UNPACK], f" <<'END_OF_PROGRAM'\n{encoded}END_OF_PROGRAM\n")


def render_fetching(program: bytes, order: PilotSettings) -> str:
    """A short script for /bin/sh, which fetches the program from the server, for batch systems that take no file."""
    return _script(order, [_FETCH, hashlib.sha256(program).hexdigest(), *order.servers], "\n", _UNFETCHED)


def _script(order: PilotSettings, loader: Sequence[str], end: str, lack: str = "") -> str:
    """`loader`: a program for Python that writes the pilot to descriptor 3, with arguments. `end`: its input.

    `lack`: more reasons for which no Python can load the pilot.
    """
    options = shlex.join(_options(order))
    options += "".join(f' {name} "{text}"' for name, text in order.node_options.items())
    index, stamp = str(order.index), shlex.quote(order.stamp)
    if order.index_variable:
        index = f'"${{{order.index_variable}}}"'
        stamp = f"{stamp}/{index}"
    pythons = [order.python] if order.python else []
    pythons += PYTHONS
    proxy = _proxy_lines(order.proxy)
    return f"""\
#!/bin/sh
umask 077
{proxy}program=$(mktemp "${{TMPDIR:-/tmp}}/pilotage.XXXXXXXX") || exit 73
exec 3<>"$program"
rm -f "$program"
python=
for candidate in {shlex.join(pythons)}; do
  if "$candidate" -c {shlex.join(loader)} 2>/dev/null; then
    python=$candidate
    break
  fi
done{end}if [ -z "$python" ]; then
  echo "pilotage: no Python 3.9 or newer{lack} on $(hostname) in PATH=${{PATH:-}}" >&2
  exit 69
fi
exec "$python" /proc/self/fd/3 {options} --index {index} --stamp {stamp} --program-fd 3 <<'END_OF_SECRET'
{order.secret}
END_OF_SECRET
"""
