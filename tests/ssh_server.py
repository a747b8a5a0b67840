"""A login node for tests: Debian's sshd as shipped, with keys of its own, in a network namespace."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.batch_daemons import skip_or_fail
from tests.deadlines import PATIENCE
from tests.debian_packages import still_lacking
from tests.instance import until
from tests.namespaces import Namespace

SSHD = "/usr/sbin/sshd"
_ALONE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")

SHIPPED = "/etc/ssh/sshd_config"


@cache
def missing() -> str:
    """Why there is no sshd here; empty: there is. As root on Debian the packages are installed."""
    if lacking := still_lacking(_lacking, ["openssh-server", "openssh-client"]):
        return f"ssh cannot be tested: {', '.join(lacking)} not installed"
    return "" if os.geteuid() == 0 else "ssh cannot be tested: sshd is started as root here"


def _lacking() -> list[str]:
    return [program for program in (SSHD, "/usr/bin/ssh", SHIPPED) if not os.path.exists(program)]


def require() -> None:
    """Skip the test where there is no sshd, or fail it if `PILOTAGE_TEST_REQUIRE` names ssh."""
    if reason := missing():
        skip_or_fail(reason, "ssh")


class LoginNode:
    """A host with an sshd, which one key opens. `reach` is for the policy."""

    def __init__(
        self,
        folder: Path,
        network: Namespace,
        *options: str,
        address: str = "",
        alone: bool = False,
        name: str = "login",
    ) -> None:
        """`options`: lines of sshd's configuration that replace those of the shipped one.

        `address`: by default that of its network. `alone`: with processes of its own, which end with it.
        """
        self.folder = folder
        self.network = network
        self.address = address or network.address
        self._alone = alone
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        for key in ("host", "other-host", "user"):
            self._run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key))
        (folder / "authorized_keys").write_bytes((folder / "user.pub").read_bytes())
        key = " ".join((folder / "host.pub").read_text().split()[:2])
        (folder / "known_hosts").write_text(f"{self.address} {key}\n")
        (folder / "config").write_text(
            f"Host {name}\n  HostName {self.address}\n  User root\n  IdentityFile {folder}/user\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known_hosts\n  GlobalKnownHostsFile none\n"
        )
        self.reach = f"ssh -F {folder}/config {name}"

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)

    def start(self, host_key: str = "host") -> None:
        """Start sshd, by default with the host key that clients know."""
        Path("/run/sshd").mkdir(exist_ok=True)
        options = (
            *(f"HostKey={self.folder / host_key}", f"AuthorizedKeysFile={self.folder}/authorized_keys"),
            # Then bash reads no ~/.bashrc of this machine's account, which may take long.
            *(
                "SetEnv=SHLVL=5",
                "PidFile=none",
                "StrictModes=no",
                f"ListenAddress={self.address}",
                *self._options,
            ),
        )
        words = [word for option in options for word in ("-o", option)]
        log = self.folder / "sshd.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *self.network.prefix,
                    *(_ALONE if self._alone else ()),
                    SSHD,
                    "-D",
                    "-e",
                    "-f",
                    SHIPPED,
                    *words,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        before = log.read_text().count("Server listening")
        until(lambda: log.read_text().count("Server listening") > before or self._listens(), what="sshd")

    def _listens(self) -> bool:
        command = [*self.network.prefix, "ssh-keyscan", "-T", "5", self.address]
        return bool(subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE).stdout)

    def stop(self) -> None:
        """End sshd and the connections that it serves, as a reboot does. Batch jobs stay."""
        if self._process is not None:
            if self._alone:
                self._process.kill()
            for pid in [] if self._alone else _descendants(self._process.pid):
                if _is_sshd(pid):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def _descendants(pid: int) -> list[int]:
    """A process and all its children, from the youngest on."""
    found = [pid]
    for process in found:
        for task in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                found += map(int, task.read_text().split())
            except OSError:
                continue
    return found[::-1]


def _is_sshd(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "sshd"
    except OSError:
        return False


@contextmanager
def login_node(
    network: Namespace, *options: str, address: str = "", alone: bool = False, name: str = "login"
) -> Iterator[LoginNode]:
    """A running login node, or with `alone` a machine of its own."""
    require()
    folder = Path(tempfile.mkdtemp(prefix="ssh-"))
    node = LoginNode(folder, network, *options, address=address, alone=alone, name=name)
    try:
        node.start()
        yield node
    finally:
        node.stop()
        shutil.rmtree(folder, ignore_errors=True)
