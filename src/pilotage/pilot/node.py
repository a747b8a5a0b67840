"""Finds the resources of this node that payloads may use.

Each figure is the smallest of several sources: the machine, the control group, the batch system's variables, the
command line and the enrolment. The root of the file system and the environment are arguments, so that tests can
describe other machines.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import shutil
import socket
import subprocess
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Tuple

from pilotage.wire.pilot import MB, Node

from .cgroups import limits_of
from .host_facts import BATCH_HOST, host_facts

_PROCESSORS = ("SLURM_CPUS_ON_NODE", "NSLOTS", "PBS_NP", "NCPUS", "LSB_DJOB_NUMPROC", "_CONDOR_NPROCS")
_NO_DEVICE = ("-1", "NoDevFiles", "10000")
"""Values of CUDA_VISIBLE_DEVICES by which batch systems hide all GPUs. That of HTCondor is 10000."""


@dataclass(frozen=True)
class NodeResources:
    """The node, and the numbers of its cores for pinning; no cores if payloads cannot be pinned."""

    node: Node
    cores: Tuple[int, ...]


def find_node(
    environment: Mapping[str, str],
    *,
    processors: int = 0,
    memory: int = 0,
    tags: Tuple[str, ...] = (),
    batch_host: str = "",
    root: str = "/",
) -> NodeResources:
    """Detect the resources. `processors` and `memory` (MB) limit them; 0: use all.

    `batch_host`: the host's name in the batch system; empty: not told.
    """
    cores = tuple(sorted(os.sched_getaffinity(0)))
    cgroup = limits_of(root)
    counts = [len(cores), batch_processors(environment)]
    if cgroup.processors:
        counts.append(max(1, int(cgroup.processors)))
    # An explicit number overrides the machine, so that tests may claim more cores; payloads are then not pinned.
    count = processors or min(count for count in counts if count)
    sizes = [total_memory(root), cgroup.memory // MB, batch_memory(environment, count), memory]
    gpus, model = find_gpus(environment, root)
    attributes = {**machine_attributes(root), **host_facts(root)}
    if batch_host:
        attributes[BATCH_HOST] = batch_host
    if gpus:
        attributes.update({"GPUs": str(gpus), **({"GPUModel": model} if model else {})})
    node = Node(
        hostname=socket.gethostname(),
        platform=platform_name(),
        processors=count,
        memory=min((size for size in sizes if size), default=0),
        tags=sorted({*tags, *detect_tags(bool(gpus))}),
        attributes=attributes,
    )
    # With fewer processors than cores it is unknown which cores are ours: another pilot could pin to the same ones.
    return NodeResources(node, cores if count == len(cores) else ())


def batch_processors(environment: Mapping[str, str]) -> int:
    """Cores of this node that the batch system has allocated; 0 if it does not say."""
    return next((int(environment[name]) for name in _PROCESSORS if environment.get(name, "").isdigit()), 0)


def batch_memory(environment: Mapping[str, str], processors: int) -> int:
    """MB that the batch system has allocated; 0 if it does not say. Slurm's MB are 2^20 bytes, like ours."""
    per_node = environment.get("SLURM_MEM_PER_NODE", "")
    per_core = environment.get("SLURM_MEM_PER_CPU", "")
    if per_node.isdigit():
        return int(per_node)
    if per_core.isdigit():
        return int(per_core) * processors
    return 0


def total_memory(root: str) -> int:
    match = re.search(r"^MemTotal:\s+(\d+) kB", _read(root, "proc/meminfo"), re.MULTILINE)
    return int(match.group(1)) * 1024 // MB if match else 0


def platform_name() -> str:
    libc, version = platform.libc_ver()
    return f"{platform.machine()}-linux-{libc or 'libc'}{version}"


def machine_attributes(root: str) -> Dict[str, str]:
    attributes = {"KernelVersion": platform.release()}
    libc, version = platform.libc_ver()
    if libc == "glibc":
        attributes["Glibc"] = version
    system = os_release(_read(root, "etc/os-release"))
    if system:
        attributes["OS"] = system
    match = re.search(r"^model name\s*:\s*(.+)$", _read(root, "proc/cpuinfo"), re.MULTILINE)
    if match:
        attributes["CPUModel"] = match.group(1).strip()
    return attributes


def os_release(text: str) -> str:
    """Name and version of the system from /etc/os-release, such as debian12 or almalinux9.4."""
    fields = dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)
    return fields.get("ID", "").strip("\"'") + fields.get("VERSION_ID", "").strip("\"'")


def detect_tags(gpu: bool) -> List[str]:
    tags = ["GPU"] if gpu else []
    if shutil.which("apptainer") or shutil.which("singularity"):
        tags.append("apptainer")
    if user_namespaces_work():
        tags.append("userns")
    return tags


def user_namespaces_work() -> bool:
    """Whether a process can create a user namespace. Tried in a child, as the kernel's settings are not conclusive."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            code = 0 if ctypes.CDLL(None).unshare(0x10000000) == 0 else 1
        os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def find_gpus(environment: Mapping[str, str], root: str) -> Tuple[int, str]:
    """The number of GPUs we may use, and the model of the first. The batch system's allocation has precedence."""
    model = ""
    folder = os.path.join(root, "proc/driver/nvidia/gpus")
    cards = os.listdir(folder) if os.path.isdir(folder) else []
    if cards:
        match = re.search(r"^Model:\s*(.+)$", _read(folder, cards[0], "information"), re.MULTILINE)
        model = match.group(1).strip() if match else ""
    visible: Optional[str] = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        listed = [part.strip() for part in visible.split(",") if part.strip()]
        return (0 if listed and listed[0] in _NO_DEVICE else len(listed)), model
    if cards:
        return len(cards), model
    return _query_nvidia_smi() if root == "/" else (0, "")


def _query_nvidia_smi() -> Tuple[int, str]:
    program = shutil.which("nvidia-smi")
    if not program:
        return 0, ""
    try:
        process_result = subprocess.run(
            [program, "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=10,
            check=True,
            text=True,
        )
    except (OSError, subprocess.SubprocessError):
        return 0, ""
    names = [line.strip() for line in process_result.stdout.splitlines() if line.strip()]
    return len(names), (names[0] if names else "")


def _read(*parts: str) -> str:
    try:
        with open(os.path.join(*parts), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
