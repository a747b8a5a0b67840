"""A small HTCondor for tests: a collector, a negotiator, a schedd and a machine in a folder of its own, on free ports.

Debian 12 has no HTCondor. So a Debian 13 with HTCondor is made once for each machine, in `CACHE`, by debootstrap. The
daemons and the commands of clients run in it by chroot, in a mount namespace that ends with the pool. They see the
temporary folders of the tests. `PILOTAGE_TEST_REQUIRE=htcondor` turns skips into failures.

HTCondor refuses jobs of root, so the commands run under the account `ACCOUNT` of the chroot.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from tests.batch_daemons import BatchDaemons, skip_or_fail
from tests.deadlines import PATIENCE
from tests.debian_packages import still_lacking
from tests.ports import free_port

CACHE = Path(os.environ.get("PILOTAGE_TEST_CACHE", "/var/cache/pilotage-tests"))
ROOT = CACHE / "htcondor-trixie"
"""The Debian with HTCondor."""
ACCOUNT = "pilots"
UID = 1000
SUITE = "trixie"
PACKAGES = ("condor", "python3", "procps")
LONGEST_PREPARATION = 600.0
"""Seconds. A mirror that is slower is as good as none."""
COMMANDS = (
    *("condor_submit", "condor_q", "condor_history", "condor_release", "condor_hold", "condor_rm"),
    *("condor_status", "condor_qedit", "condor_vacate_job", "condor_ping", "condor_config_val", "sh"),
)
DAEMONS = ("negotiator", "schedd", "startd")


@cache
def missing() -> str:
    """Why there is no HTCondor here; empty: there is. As root on Debian it is installed."""
    if os.geteuid() != 0:
        return "HTCondor cannot be tested: its daemons are started as root here"
    if lacking := still_lacking(_lacking, ("debootstrap",)):
        return f"HTCondor cannot be tested: {', '.join(lacking)} not installed"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "htcondor.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return "" if ROOT.is_dir() else _prepare()


def _lacking() -> list[str]:
    return [name for name in ("debootstrap", "nsenter", "unshare", "chroot") if shutil.which(name) is None]


def _prepare() -> str:
    """Make the Debian of `ROOT`, within `LONGEST_PREPARATION`; why it cannot be made."""
    made, mirror = CACHE / f"{ROOT.name}.part", _mirror()
    shutil.rmtree(made, ignore_errors=True)
    refusal = made / "usr/sbin/policy-rc.d"
    install = "apt-get -qq update && apt-get -qq install -y --no-install-recommends " + " ".join(PACKAGES)
    steps = (
        f"debootstrap --variant=minbase --include=ca-certificates {SUITE} {made} {mirror}",
        f"printf '#!/bin/sh\\nexit 101\\n' > {refusal} && chmod +x {refusal}",
        f"cp /etc/resolv.conf {made}/etc/ && mount -t proc proc {made}/proc",
        f"DEBIAN_FRONTEND=noninteractive chroot {made} sh -c '{install}'",
        f"chroot {made} useradd -m -u {UID} {ACCOUNT} && rm -rf {made}/var/cache/apt/archives/*.deb",
    )
    # Its mounts end with the namespace.
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", "\n".join(steps)]
    with (CACHE / "htcondor.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            status = process.wait(LONGEST_PREPARATION)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
    if status == 0:
        made.rename(ROOT)
        return ""
    shutil.rmtree(made, ignore_errors=True)
    said = (CACHE / "htcondor.log").read_text(errors="replace").strip().splitlines()[-3:]
    return f"HTCondor cannot be tested: {SUITE} could not be made from {mirror}: {' / '.join(said)}"


def _mirror() -> str:
    """The mirror that this machine uses."""
    for path in sorted(Path("/etc/apt").glob("sources.list.d/*.sources")):
        for line in path.read_text().splitlines():
            if line.startswith("URIs:"):
                return line.split()[1]
    return "http://deb.debian.org/debian"


def require() -> None:
    """Skip the test where there is no HTCondor, or fail it if `PILOTAGE_TEST_REQUIRE` names htcondor."""
    if reason := missing():
        skip_or_fail(reason, "htcondor")


class CondorPool(BatchDaemons):
    """One pool. `environment` is for the commands of clients."""

    system = "HTCondor"
    controller = "schedd"

    def __init__(self, folder: Path, cores: int, settings: Mapping[str, str]) -> None:
        """`settings` replace lines of the configuration."""
        super().__init__(folder)
        self.cores = cores
        self._settings = settings
        self.port = free_port()
        self.host = socket.gethostname()
        self.schedd = "test@"
        """The name of the schedd."""
        self.logs = folder / "pilots"
        """A folder where batch jobs may write."""
        self.address = f"127.0.0.1:{self.port}"
        self._keeper: subprocess.Popen[bytes] | None = None
        self.environment = {
            "PATH": f"{folder / 'bin'}:{os.environ.get('PATH', '')}",
            "HOME": str(folder),
            "USER": ACCOUNT,
            "CONDOR_CONFIG": str(folder / "condor_config"),
        }

    def start(self) -> None:
        """Start all daemons and wait until the machine is ready."""
        self._make_folders()
        self._enter_namespace()
        (self.folder / "condor_config").write_text(
            "".join(f"{name} = {value}\n" for name, value in self._configuration().items())
        )
        for name in COMMANDS:
            self._write_command(name)
        self._start_daemon("collector", "-p", str(self.port))
        for name in DAEMONS:
            self._start_daemon(name)
        self.wait_until(self._is_ready, "the pool is not ready")

    def _is_ready(self) -> bool:
        return bool(self.run("condor_status", "-af", "Name")) and self._answers()

    def _answers(self) -> bool:
        return bool(self.run("condor_status", "-schedd", "-direct", "", "-af", "Name"))

    def start_schedd(self) -> None:
        self._start_daemon("schedd")
        self.wait_until(self._answers, "the schedd does not answer")

    def restart_schedd(self) -> None:
        """Stop the schedd, which saves its queue then, and start it again."""
        self._terminate_controller()
        self.start_schedd()

    def forget_queue(self) -> None:
        """Remove the saved queue of a schedd that does not run: it knows no job, and gives all ids again."""
        for path in (self.folder / "spool").glob("job_queue.log*"):
            path.unlink()

    def run(self, *command: str, text: str = "") -> str:
        """The output of a client command; its exit code is ignored."""
        try:
            return self.call(*command, text=text).stdout
        except subprocess.TimeoutExpired:
            return ""

    def call(self, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(command),
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            cwd="/",
        )

    def as_root(self, *command: str) -> str:
        """The output of a command in the pool, as root."""
        entered = [*self._inside(), "env", f"CONDOR_CONFIG={self.folder}/condor_config", *command]
        done = subprocess.run(entered, capture_output=True, text=True, check=True, timeout=PATIENCE)
        return done.stdout

    def kill_job(self, batch_id: str) -> None:
        """Kill the processes of a batch job."""
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                variables = (folder / "environ").read_bytes().split(b"\0")
                scratch = f"_CONDOR_SCRATCH_DIR={self.folder}".encode()
                if f"PILOTAGE_BATCH_ID={batch_id}".encode() in variables and any(
                    variable.startswith(scratch) for variable in variables
                ):
                    os.kill(int(folder.name), signal.SIGKILL)

    def tokens(self, identity: str, lifetime: int = 86400) -> Path:
        """A folder with a token of this identity, which the account of the commands alone can read."""
        folder = Path(tempfile.mkdtemp(prefix="tokens-", dir=self.logs))
        token = self.as_root("condor_token_create", "-identity", identity, "-lifetime", str(lifetime))
        (folder / "token").write_text(token)
        (folder / "token").chmod(0o600)
        for path in (folder, folder / "token"):
            os.chown(path, UID, UID)
        return folder

    def cancel_all(self) -> None:
        """Remove all jobs, and wait for their end."""
        self.run("condor_rm", "-all")
        self.wait_until(lambda: not self.run("condor_q", "-allusers", "-af", "ClusterId"), "jobs do not end")

    def stop(self) -> None:
        """Remove all jobs, and end all daemons even if a job does not end."""
        try:
            if {"schedd", "startd"} <= set(self._daemons):
                self.cancel_all()
        finally:
            # The processes of a job end with its machine.
            for name in ("startd", "schedd"):
                if (process := self._daemons.pop(name, None)) is not None:
                    process.send_signal(signal.SIGQUIT)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(PATIENCE)
                    process.kill()
                    process.wait()
            for daemon in tuple(self._daemons):
                self.kill(daemon)
            if self._keeper is not None:
                self._keeper.kill()
                self._keeper.wait()

    def _logs(self, ended: Collection[str]) -> list[Path]:
        return list((self.folder / "log").iterdir())

    def _start_daemon(self, name: str, *arguments: str) -> None:
        command = [*self._inside(), f"/usr/sbin/condor_{name}", "-f", *arguments]
        self._spawn(
            name,
            command,
            {"CONDOR_CONFIG": self.environment["CONDOR_CONFIG"], "PATH": "/usr/bin:/bin:/usr/sbin"},
        )

    def _inside(self, account: str = "") -> list[str]:
        """The words before a command that runs in the chroot."""
        assert self._keeper is not None
        userspec = [f"--userspec={account}:{account}"] if account else []
        return ["nsenter", f"--mount=/proc/{self._keeper.pid}/ns/mnt", "chroot", *userspec, str(ROOT)]

    def _write_command(self, name: str) -> None:
        """A command of clients that enters the chroot."""
        path = self.folder / "bin" / name
        inside = " ".join(self._inside(ACCOUNT))
        # The folder of these commands is the same one inside.
        path.write_text(
            f'#!/bin/sh\nexec {inside} /usr/bin/env HOME=/home/{ACCOUNT} PATH=/usr/bin:/bin {name} "$@"\n'
        )
        path.chmod(0o755)

    def _make_folders(self) -> None:
        self.folder.chmod(0o755)
        (self.folder / "bin").mkdir()
        owner = self._condor_account()
        for name in ("log", "spool", "execute", "lock", "run", "passwords", "tokens", "pilots"):
            path = self.folder / name
            path.mkdir()
            if name not in ("passwords", "tokens"):
                os.chown(path, *((UID, UID) if name == "pilots" else owner))
            path.chmod(0o700 if name in ("passwords", "tokens") else 0o755)
        key = self.folder / "passwords" / "POOL"
        key.write_bytes(secrets.token_bytes(64))
        key.chmod(0o600)

    def _condor_account(self) -> tuple[int, int]:
        lines = [line.split(":") for line in (ROOT / "etc/passwd").read_text().splitlines()]
        [(uid, gid)] = [(int(line[2]), int(line[3])) for line in lines if line[0] == "condor"]
        return uid, gid

    def _enter_namespace(self) -> None:
        """Start the process that keeps the mounts: jobs only start where `/` is a mount point."""
        ready, shared = self.folder / "run" / "mounted", {"/tmp", "/dev", "/var/tmp"}
        shared |= {tempfile.gettempdir()} if (ROOT / tempfile.gettempdir().lstrip("/")).is_dir() else set()
        mounts = [
            f"mount --bind {ROOT} {ROOT}",
            f"mount -t proc proc {ROOT}/proc",
            *(f"mount --rbind {path} {ROOT}{path}" for path in sorted(shared)),
            f"mount --bind /etc/hosts {ROOT}/etc/hosts",
            f"touch {ready}",
            "exec sleep infinity",
        ]
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", "\n".join(mounts)]
        self._keeper = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self.wait_until(ready.exists, "the chroot is not mounted")

    def _configuration(self) -> dict[str, str]:
        folder = self.folder
        return {
            "RELEASE_DIR": "/usr",
            "BIN": "/usr/bin",
            "SBIN": "/usr/sbin",
            "LIB": "/usr/lib/condor",
            "LIBEXEC": "/usr/libexec/condor",
            "SHARE": "/usr/share/condor",
            "LOCAL_DIR": str(folder),
            "LOG": f"{folder}/log",
            "SPOOL": f"{folder}/spool",
            "EXECUTE": f"{folder}/execute",
            "LOCK": f"{folder}/lock",
            "RUN": f"{folder}/run",
            "CONDOR_HOST": "127.0.0.1",
            "NETWORK_INTERFACE": "127.0.0.1",
            "BIND_ALL_INTERFACES": "False",
            "COLLECTOR_HOST": self.address,
            "SCHEDD_NAME": self.schedd,
            "USE_SHARED_PORT": "False",
            "SEC_USE_FAMILY_SESSION": "False",
            "TRUST_DOMAIN": "test",
            "UID_DOMAIN": "test",
            "FILESYSTEM_DOMAIN": "test",
            "SEC_DEFAULT_AUTHENTICATION_METHODS": "FS, IDTOKENS",
            "SEC_PASSWORD_DIRECTORY": f"{folder}/passwords",
            "SEC_TOKEN_SYSTEM_DIRECTORY": f"{folder}/tokens",
            "ALLOW_READ": "*",
            "ALLOW_WRITE": "*",
            "ALLOW_ADMINISTRATOR": "*",
            "ALLOW_DAEMON": "*",
            "ALLOW_NEGOTIATOR": "*",
            "NUM_CPUS": str(self.cores),
            "MEMORY": str(2000 * self.cores),
            "START": "True",
            "SUSPEND": "False",
            "PREEMPT": "False",
            "KILL": "False",
            "NEGOTIATOR_INTERVAL": "1",
            "NEGOTIATOR_MIN_INTERVAL": "1",
            "NEGOTIATOR_CYCLE_DELAY": "1",
            "SCHEDD_INTERVAL": "2",
            "SCHEDD_MIN_INTERVAL": "1",
            "PERIODIC_EXPR_INTERVAL": "2",
            "UPDATE_INTERVAL": "5",
            "JOB_START_DELAY": "0",
            "JOB_START_COUNT": "100",
            # Without procd the machine itself crashes when a starter has crashed.
            "USE_PROCD": "False",
            "STARTD.USE_PROCD": "True",
            "PROCD_ADDRESS": f"{folder}/run/procd",
            "BASE_CGROUP": "",
            "RUNBENCHMARKS": "False",
            "MOUNT_PRIVATE_DEV_SHM": "False",
            "DISCARD_SESSION_KEYRING_ON_STARTUP": "False",
            **self._settings,
        }


@contextmanager
def condor_pool(cores: int = 16, **settings: str) -> Iterator[CondorPool]:
    """A running HTCondor with one machine."""
    require()
    made = CondorPool(Path(tempfile.mkdtemp(prefix="condor-")), cores, settings)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(made.folder, ignore_errors=True)
