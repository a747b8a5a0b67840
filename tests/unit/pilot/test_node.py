from __future__ import annotations

from pathlib import Path

import pytest

from pilotage.pilot import node
from pilotage.pilot.cgroups import CgroupLimits, limits_of, parse_membership
from pilotage.pilot.host_facts import host_facts
from pilotage.pilot.process_tree import descendants, parse_stat


def write(root: Path, name: str, content: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(content)


def test_version_2_takes_the_smallest_up_to_the_root(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/slurm/job_1\n")
    write(tmp_path, "sys/fs/cgroup/slurm/job_1/cpu.max", "max 100000\n")
    write(tmp_path, "sys/fs/cgroup/slurm/cpu.max", "400000 100000\n")
    write(tmp_path, "sys/fs/cgroup/slurm/job_1/memory.max", "2000000000\n")
    write(tmp_path, "sys/fs/cgroup/slurm/memory.max", "max\n")
    assert limits_of(str(tmp_path)) == CgroupLimits(4.0, 2_000_000_000)


def test_version_1(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/\n")
    write(tmp_path, "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "150000")
    write(tmp_path, "sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000")
    write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
    write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    write(tmp_path, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712")
    assert limits_of(str(tmp_path)) == CgroupLimits(1.5, 0)


def test_nothing_to_read_limits_nothing(tmp_path: Path) -> None:
    assert limits_of(str(tmp_path)) == CgroupLimits()
    assert parse_membership("nonsense\n0::/a:b\n")[-1] == ("", "/a:b")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, 0), ({"SLURM_CPUS_ON_NODE": "8"}, 8), ({"NSLOTS": "3"}, 3), ({"SLURM_CPUS_ON_NODE": "x"}, 0)],
)
def test_processors_of_the_batch_system(environment: dict[str, str], expected: int) -> None:
    assert node.batch_processors(environment) == expected


def test_memory_of_slurm_is_in_our_unit() -> None:
    assert node.batch_memory({"SLURM_MEM_PER_NODE": "1024"}, 4) == 1024
    assert node.batch_memory({"SLURM_MEM_PER_CPU": "1024"}, 4) == 4096
    assert node.batch_memory({}, 4) == 0


@pytest.mark.parametrize("limit", ["2147483648", "2147483648\n"])
def test_a_limit_of_two_gigabytes_is_2048_mb(tmp_path: Path, limit: str) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/job\n")
    write(tmp_path, "sys/fs/cgroup/job/memory.max", limit)
    write(tmp_path, "proc/meminfo", "MemTotal:        8388608 kB\n")
    assert node.find_node({}, processors=1, root=str(tmp_path)).node.memory == 2048
    assert (
        node.find_node({"SLURM_MEM_PER_NODE": "1024"}, processors=1, root=str(tmp_path)).node.memory == 1024
    )


def test_the_machine_from_its_files(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", "MemTotal:        8388608 kB\nMemFree: 1 kB\n")
    write(tmp_path, "etc/os-release", 'NAME="X"\nID=almalinux\nVERSION_ID="9.4"\n')
    write(tmp_path, "proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n")
    write(tmp_path, "proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t NVIDIA A100\n")
    found = node.find_node({}, processors=1, root=str(tmp_path)).node
    assert (found.memory, found.attributes["OS"]) == (8192, "almalinux9.4")
    assert found.attributes["CPUModel"] == "Some CPU @ 2 GHz"
    assert (found.attributes["GPUs"], found.attributes["GPUModel"]) == ("1", "NVIDIA A100")
    assert "GPU" in found.tags


@pytest.mark.parametrize(("visible", "count"), [("0,2", 2), ("", 0), ("-1", 0), ("10000", 0), ("GPU-abc", 1)])
def test_gpus_as_the_batch_system_says(visible: str, count: int, tmp_path: Path) -> None:
    assert node.find_gpus({"CUDA_VISIBLE_DEVICES": visible}, str(tmp_path)) == (count, "")


def test_stat_lines_with_odd_names() -> None:
    line = "42 (a) b (c)) S 1 42 42 0 -1 4194560 1 0 0 0 200 100 50 50 20 0 1 0 777 1000 3 0"
    process = parse_stat(line)
    assert (process.pid, process.parent, process.session, process.started) == (42, 1, 42, 777)
    assert process.cpu == pytest.approx(4.0)
    assert [found.pid for found in descendants(1, {42: process})] == [42]


def test_the_host_in_names_of_glue(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", "MemTotal:  8388608 kB\nSwapTotal:  1048576 kB\n")
    write(
        tmp_path,
        "etc/os-release",
        'NAME="Debian GNU/Linux"\nID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n',
    )
    write(
        tmp_path,
        "proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Some CPU\ncpu MHz\t\t: 2394.454\n",
    )
    facts = host_facts(str(tmp_path))
    assert facts.pop("GlueHostArchitecturePlatformType")
    assert int(facts.pop("GlueHostArchitectureSMPSize")) >= 1
    assert facts == {
        "GlueHostMainMemoryRAMSize": "8192",
        "GlueHostMainMemoryVirtualSize": "9216",
        "GlueHostProcessorVendor": "intel",
        "GlueHostProcessorModel": "Some CPU",
        "GlueHostProcessorClockSpeed": "2394",
        "GlueHostOperatingSystemName": "Debian",
        "GlueHostOperatingSystemRelease": "12",
        "GlueHostOperatingSystemVersion": "bookworm",
    }
    assert host_facts(str(tmp_path / "nothing")).keys() == {
        "GlueHostArchitecturePlatformType",
        "GlueHostArchitectureSMPSize",
    }


def test_the_host_as_the_batch_system_names_it(tmp_path: Path) -> None:
    found = node.find_node({}, processors=1, batch_host="n7", root=str(tmp_path)).node
    assert found.attributes["BatchHost"] == "n7"
    assert "BatchHost" not in node.find_node({}, processors=1, root=str(tmp_path)).node.attributes


@pytest.mark.parametrize(
    ("system", "name"),
    [
        ("ID=almalinux\nNAME=AlmaLinux", "AlmaLinux"),
        ('ID="rocky"\nNAME="Rocky Linux"', "Rocky"),
        ('ID="rhel"\nNAME="Red Hat Enterprise Linux"', "rhel"),
        ("NAME=X", ""),
    ],
)
def test_names_of_systems_are_those_of_lsb_release(tmp_path: Path, system: str, name: str) -> None:
    write(tmp_path, "etc/os-release", system)
    assert host_facts(str(tmp_path)).get("GlueHostOperatingSystemName", "") == name
