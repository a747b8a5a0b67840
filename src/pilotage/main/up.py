"""`pilotage up`: the server, in the foreground or detached."""

from __future__ import annotations

import json
import logging
import os
import pwd
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from pilotage.cli.parser import CommandOption
from pilotage.core.errors import Conflict, InvalidInput
from pilotage.core.plug_ins import known_plug_ins
from pilotage.core.trace_context import VARIABLE
from pilotage.main.database_options import (
    DEFAULT_HOME,
    DatabaseOption,
    HomeOption,
    UrlOption,
    database_location,
)
from pilotage.main.hidden_environment import hide_environment
from pilotage.main.server_options import (
    CollectorOption,
    ConnectionsOption,
    ConnectionsPerAddressOption,
    LeastFreeOption,
    LogFormat,
    LogFormatOption,
    LogOptions,
    PlainOptions,
    PolicyOption,
    PortOption,
    ProxiesOption,
    RecordLimitOption,
    RecordOption,
    SandboxesOption,
)
from pilotage.outside.service_keys import with_keys

if TYPE_CHECKING:
    from pilotage.server.process.home import Home, Listening, ServerFacts

READY_WITHIN = 60.0


def up(
    home: HomeOption = DEFAULT_HOME,
    detach: Annotated[bool, CommandOption("Run in the background; return when the server is ready")] = False,
    port: PortOption = 0,
    listen: Annotated[
        str,
        CommandOption(
            "Address to listen on, also at later starts; always with TLS if it is not a loopback address."
            " Default: that of the last start, at the first one 127.0.0.1",
            "HOST[:PORT]",
            envvar="PILOTAGE_LISTEN",
        ),
    ] = "",
    database: DatabaseOption = None,
    database_url: UrlOption = "",
    pilot_server: Annotated[
        str,
        CommandOption(
            "Address at which pilots reach the server, if it differs from the listening address; kept until --listen"
            " or this option is given",
            "URL",
            envvar="PILOTAGE_PILOT_SERVER",
        ),
    ] = "",
    policy: PolicyOption = "",
    sandboxes: SandboxesOption = None,
    connections: ConnectionsOption = 16_384,
    connections_per_address: ConnectionsPerAddressOption = 512,
    proxies: ProxiesOption = "",
    least_free: LeastFreeOption = 64,
    otlp: CollectorOption = "",
    record: RecordOption = None,
    record_limit: RecordLimitOption = 1000,
    verbose: Annotated[bool, CommandOption("Log more", names="--verbose -v")] = False,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> int:
    """Start the server, with pilots on this machine. Creates the home folder at the first start."""
    hide_environment()
    from pilotage.server.http.addresses import check_proxies, parse_listen
    from pilotage.server.process.home import Home, Listening

    place = Home.at(home, database_location(database, database_url))
    last = place.listening
    host, listen_port = parse_listen(listen) if listen else (last.host, 0)
    if port and listen_port and port != listen_port:
        raise InvalidInput(f"--port {port} and --listen {listen} differ", hint="give the port once")
    pilot_server = pilot_server or ("" if listen else last.pilot_server)
    _tell_change(place, last, Listening(host, pilot_server))
    address, given = (host, listen_port or port), _policy_text(policy)
    plain = PlainOptions(connections, connections_per_address, check_proxies(proxies), least_free, otlp)
    log = LogOptions(verbose, log_format)
    if detach:
        return _start_detached(
            place, address, pilot_server, policy, sandboxes, log, database_url, plain, record, record_limit
        )
    _serve(place, address, pilot_server, given, sandboxes, log, plain, record, record_limit)
    return 0


def _tell_change(home: Home, last: Listening, listening: Listening) -> None:
    """Say that the server will be found at another place than the last one of this home."""
    facts = home.known_facts()
    if facts is not None and listening != last:
        pilots = f" (pilots: {listening.pilot_server})" if listening.pilot_server else ""
        print(
            f"The last server of this home listened on {last.host}; this start names {listening.host}{pilots}."
            f" Clients and pilots of {last.pilot_server or facts.url} may not find the new one.",
            file=sys.stderr,
        )


def _policy_text(file: str) -> str:
    """The text of a valid policy; empty: no file is given."""
    from pilotage.cli.policy.files import policy_for_server
    from pilotage.core.policy import parse

    if not file:
        return ""
    if file == "-":
        raise InvalidInput("--policy needs a file")
    text = policy_for_server(file)
    try:
        parse(text)
    except InvalidInput as error:
        error.file = file
        raise
    return text


def _serve(
    home: Home,
    address: tuple[str, int],
    pilot_server: str,
    policy: str,
    sandboxes: Path | None,
    log: LogOptions,
    plain: PlainOptions,
    record: Path | None,
    record_limit: int,
) -> None:
    from pilotage.pilot.node import find_node
    from pilotage.server.process.run import serve
    from pilotage.server.process.settings import Settings

    _begin_log(log)
    for plug_in in known_plug_ins():
        if plug_in.problem:
            logging.getLogger("pilotage").warning("plug-in %s", plug_in.words)
    os.umask(0o077)
    os.environ.pop(VARIABLE, None)  # the server and its agent outlive the trace in which they are started
    settings = Settings(
        home=home,
        host=address[0],
        port=address[1],
        pilot_server=pilot_server,
        owner=_account_name(),
        node=find_node(os.environ).node,
        announce=lambda url: _announce(home.folder, url, log.format),
        policy=policy,
        sandboxes=sandboxes.expanduser().absolute() if sandboxes is not None else None,
        collector=plain.otlp,
        record=record.expanduser().absolute() if record is not None else None,
        record_limit=record_limit * 1_000_000,
        connections=plain.connections,
        connections_per_address=plain.connections_per_address,
        proxies=plain.proxies,
        least_free=plain.least_free,
    )
    serve(settings)


def _account_name() -> str:
    """The name of the account, from the system: environment variables are not trusted."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid{os.getuid()}"


def _begin_log(log: LogOptions) -> None:
    from pilotage.agent.log import JsonLines

    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if log.format is LogFormat.JSON else text)
    logging.basicConfig(level=logging.INFO if log.verbose else logging.WARNING, handlers=[handler])


def _announce(folder: Path, url: str, format: LogFormat) -> None:
    from pilotage.main.payload_python import describe_payload_python

    lines = [
        f"Pilotage serves {folder} at {url} (process {os.getpid()}). Ctrl-C stops it; pilots go on.",
        describe_payload_python(os.environ),
    ]
    if format is LogFormat.JSON:
        # Everything that a detached server prints goes into its log, where each line is an object.
        at = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        facts = {"at": at, "level": "INFO", "logger": "pilotage", "url": url, "process": os.getpid()}
        lines = [json.dumps({**facts, "event": " ".join(lines)}, ensure_ascii=False)]
    print("\n".join(lines), flush=True)


def _start_detached(
    home: Home,
    address: tuple[str, int],
    pilot_server: str,
    policy: str,
    sandboxes: Path | None,
    log: LogOptions,
    url: str,
    plain: PlainOptions,
    record: Path | None,
    record_limit: int,
) -> int:
    """Start this program in a new session and wait until the server is ready."""
    os.umask(0o077)
    home.make()
    command = [sys.executable, "-m", "pilotage.main", "up", "--home", str(home.folder)]
    host, port = address
    command += ["--listen", f"[{host}]" if ":" in host else host, "--port", str(port)]
    command += ["--log-format", log.format.value, *(["--verbose"] if log.verbose else [])]
    if pilot_server:
        command += ["--pilot-server", pilot_server]
    for name, value in plain._asdict().items():
        if value != "":
            command += [f"--{name.replace('_', '-')}", str(value)]
    if policy:
        command += ["--policy", str(Path(policy).absolute())]
    if record is not None:
        command += ["--record", str(record.absolute()), "--record-limit", str(record_limit)]
    if sandboxes is not None:
        command += ["--sandboxes", str(sandboxes.expanduser().absolute())]
    environment = {
        key: value for key, value in with_keys().items() if not key.startswith("PILOTAGE_DATABASE")
    }
    if home.database.file is not None:
        command += ["--database", str(home.database.file)]
    else:
        # As a variable, since it may contain a password.
        environment["PILOTAGE_DATABASE_URL"] = url or home.database.shown
    last, before = home.known_facts(), home.log.stat().st_size if home.log.exists() else 0
    with home.log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd="/",
            env=environment,
        )
    status = _await_ready(home, process, before)
    if not status and last is not None and not port:
        _tell_new_port(home, last)
    return status


def _tell_new_port(home: Home, last: ServerFacts) -> None:
    """Say that the server could not have the port of the last one; its warning is in the log."""
    facts = home.known_facts()
    if facts is not None and urlsplit(facts.url).port != urlsplit(last.url).port:
        print(
            f"Port {urlsplit(last.url).port} of the last server is used by another program: its pilots do not find"
            " this one, and their jobs start again elsewhere.",
            file=sys.stderr,
        )


def _await_ready(home: Home, process: subprocess.Popen[bytes], log_start: int) -> int:
    """Wait until the server answers; print its address, or the end of its log from byte `log_start` on."""
    from pilotage.main.payload_python import describe_payload_python

    deadline = time.monotonic() + READY_WITHIN
    while time.monotonic() < deadline:
        facts = home.known_facts()
        if facts is not None and facts.pid == process.pid and _answers(facts.url):
            print(f"Pilotage serves {home.folder} at {facts.url} (process {process.pid}).")
            print(describe_payload_python(os.environ))
            return 0
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        print(f"pilotage: the server did not start: {_log_tail(home.log, log_start)}", file=sys.stderr)
        return process.returncode or 1
    raise Conflict(f"the server is not ready after {READY_WITHIN:.0f} s", hint=f"its log is {home.log}")


def _answers(url: str) -> bool:
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 443), 0.5):
            return True
    except OSError:
        return False


def _log_tail(log: Path, start: int) -> str:
    with log.open("rb") as file:
        file.seek(start)
        text = file.read().decode(errors="replace").strip()
    return text.removeprefix("pilotage: ")[-1500:] or "it said nothing"
