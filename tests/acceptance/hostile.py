"""A payload that looks for what is not its own, and tells what it found. Run as a job."""

import glob
import json
import os
import urllib.error
import urllib.request


def attempt(read):
    try:
        return "read %d bytes" % len(read())
    except OSError as error:
        return type(error).__name__


def ancestors():
    pid, found = os.getppid(), []
    while pid > 1:
        found.append(pid)
        with open("/proc/%d/stat" % pid) as stat:
            pid = int(stat.read().rpartition(")")[2].split()[1])
    return found


def memory(pid):
    with open("/proc/%d/maps" % pid) as maps:
        first = maps.readline().split()[0].split("-")
    with open("/proc/%d/mem" % pid, "rb") as mem:
        mem.seek(int(first[0], 16))
        return mem.read(100)


def file(path):
    with open(path, "rb") as handle:
        return handle.read()


def pilots():
    """The guardian and the pilot proper, by their command line."""
    return [pid for pid in ancestors() if b"--secret-fd" in file("/proc/%d/cmdline" % pid) or b"pilot.pyz" in file("/proc/%d/cmdline" % pid)]


def fetch(path, token=""):
    request = urllib.request.Request(os.environ["SERVER"] + path, headers={"Authorization": "Bearer " + token})
    try:
        return urllib.request.urlopen(request, timeout=10).status
    except urllib.error.HTTPError as error:
        return error.code


report = {"pilots": {}}
for pid in pilots():
    report["pilots"][pid] = {
        "environ": attempt(lambda: file("/proc/%d/environ" % pid)),
        "memory": attempt(lambda: memory(pid)),
        "files": attempt(lambda: os.listdir("/proc/%d/fd" % pid)),
        "arguments": file("/proc/%d/cmdline" % pid).decode().split("\0"),
    }
report["environment"] = dict(os.environ)
report["beside"] = sorted(os.listdir(".."))
report["leftovers"] = [path for path in glob.glob("/tmp/pilotage*/*.pyz") + glob.glob("../*.pyz") + glob.glob("../../*.pyz")]
report["http"] = {path: fetch(path) for path in ("/v1/jobs", "/v1/pilot.pyz", "/v1/policy", "/v1/uploads/" + "0" * 64)}
report["http"]["guessed token"] = fetch("/v1/jobs", "x" * 43)
print(json.dumps(report))
