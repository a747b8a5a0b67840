"""The commands of LSF: `python -I lsf_commands.py FOLDER lsf COMMAND ARGUMENTS`.

Written after the command reference of IBM Spectrum LSF 10.1 (bsub, bjobs, bresume, bkill, bqueues, bhosts, lshosts and
lsid) and the examples of their output there.
"""

import json
import os
import pathlib
import pwd
import re
import signal
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.doubles.jobs import SLOTS, Cluster, Job, Task, answer, fail_as_told, locked
else:
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    from jobs import SLOTS, Cluster, Job, Task, answer, fail_as_told, locked

CLUSTER = "cluster1"
HOST = "hosta"
QUEUE = "normal"

OPTIONS: dict[str, dict[str, bool]] = {
    # Whether the option has a value.
    "bsub": {
        **dict.fromkeys(("-H", "-rn", "-r", "-B", "-N", "-K", "-x"), False),
        **dict.fromkeys(("-J", "-Jd", "-cwd", "-o", "-e", "-n", "-R", "-M", "-W", "-q", "-P", "-G"), True),
        **dict.fromkeys(("-app", "-m", "-sp", "-env", "-L"), True),
    },
    "bjobs": {
        **dict.fromkeys(("-a", "-json", "-l", "-w", "-p", "-noheader"), False),
        **dict.fromkeys(("-u", "-o", "-J", "-q"), True),
    },
    "bresume": {"-J": True, "-u": True, "-q": True},
    "bkill": {"-J": True, "-u": True, "-q": True, "-s": True, "-r": False},
    "bqueues": {"-l": False, "-w": False},
    "bhosts": {"-w": False, "-l": False},
    "lshosts": {"-w": False, "-l": False},
    "lsid": {"-V": False},
}
SIZE = re.compile(r"[0-9]+(?:KB?|MB?|GB?|TB?)")


class Mistake(Exception):
    """The text of an error of a command, and its exit code."""

    def __init__(self, text: str, status: int = 255) -> None:
        self.text = text
        self.status = status
        super().__init__(text)


def user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


def read_options(command: str, words: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """LSF has options of several letters after one dash."""
    known, pairs = OPTIONS[command], list[tuple[str, str]]()
    rest = list(words)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option not in known:
            raise Mistake(f"{command}: Illegal option -- {option[1:]}\nUsage: {command} [-h] [-V] ...\n")
        if known[option] and not rest:
            raise Mistake(f"{command}: Option needs an argument -- {option[1:]}\n")
        pairs.append((option, rest.pop(0) if known[option] else ""))
    return pairs, rest


def refuse(text: str) -> Mistake:
    return Mistake(f"{text}. Job not submitted.\n")


def check_requirement(text: str) -> None:
    if not re.fullmatch(r"(?:(?:select|order|rusage|span)\[[^\[\]]+\] ?)+", text):
        raise refuse(f"Bad resource requirement syntax <{text}>")
    for usage in re.findall(r"rusage\[([^\]]*)\]", text):
        if not re.fullmatch(r"mem=[0-9]+MB/host", usage):
            raise refuse(f"this double wants units and /host in <{usage}>")
    for name in re.findall(
        r"[A-Za-z_]\w*(?=\s*[<>=!&|)\]]|$)", "".join(re.findall(r"select\[([^\]]*)\]", text))
    ):
        if name not in ("maxmem", "ncpus", "type", "fast", "si00_600", "si00_800", "MB", "any", "X86_64"):
            raise refuse(f"Unknown resource name <{name}> in resource requirement")


def bsub(cluster: Cluster, pairs: list[tuple[str, str]], operands: list[str]) -> str:
    options = dict(pairs)
    if operands:
        raise refuse("this double reads scripts from standard input only")
    for option, value in pairs:
        if option == "-R":
            check_requirement(value)
    if "-M" in options and not SIZE.fullmatch(options["-M"]):
        raise refuse(f"{options['-M']}: Bad MEMLIMIT specification")
    if not re.fullmatch(r"[0-9]+(?::[0-9]+)?", options.get("-W", "1")):
        raise refuse(f"{options['-W']}: Bad RUNLIMIT specification")
    queue = options.get("-q", QUEUE)
    if queue != QUEUE:
        raise refuse(f"{queue}: No such queue")
    name, indexes = options.get("-J", ""), None
    if (match := re.fullmatch(r"(.*)\[([0-9]+)(?:-([0-9]+))?\]", name)) is not None:
        name, first, last = match[1], int(match[2]), int(match[3] or match[2])
        if first < 1 or last < first:
            raise refuse(f"{options['-J']}: Bad job array index list")
        indexes = list(range(first, last + 1))
    number = str(cluster.state["next"])
    job: Job = {
        "name": name,
        "owner": user(),
        "hold": "u" if "-H" in options else "",
        "queue": queue,
        "options": options,
        "slots": int(options.get("-n", "1")),
        "is_array": indexes is not None,
        "variables": {},
        "environment": dict(os.environ),
        "job_variables": {
            "LSB_JOBID": number,
            "LSB_JOBINDEX": "{index}" if indexes is not None else "0",
            "LSB_JOBNAME": f"{name}[{{index}}]" if indexes is not None else name,
            "LSB_QUEUE": queue,
            "LSB_HOSTS": HOST,
        },
    }
    cluster.add(job, indexes, sys.stdin.read())
    kind = "queue" if "-q" in options else "default queue"
    return f"Job <{number}> is submitted to {kind} <{queue}>.\n"


def state_of(job: Job, task: Task) -> str:
    if task["state"] == "waiting":
        return "PSUSP" if job["hold"] else "PEND"
    if task["state"] == "running":
        return "RUN"
    return "EXIT" if task.get("status", 1) else "DONE"


def fields_of(job: Job, index: str, task: Task) -> dict[str, str]:
    state = state_of(job, task)
    waits = {
        "PSUSP": "Job was suspended by the user while pending;",
        "PEND": "New job is waiting for scheduling;",
    }
    status = task.get("status", 0)
    if status > 256:
        status = status - 128
    reason = "TERM_OWNER: job killed by owner" if "deleted" in task and state == "EXIT" else ""
    return {
        "JOBID": job["number"],
        "JOBINDEX": index or "0",
        "STAT": state,
        "USER": job["owner"],
        "QUEUE": job["queue"],
        "JOB_NAME": f"{job['name']}[{index}]" if index else job["name"],
        "JOB_DESCRIPTION": job["options"].get("-Jd", ""),
        "EXEC_HOST": HOST if "begun" in task else "",
        "EXIT_CODE": str(status) if status else "",
        "EXIT_REASON": reason,
        "PEND_REASON": job.get("comment") or waits.get(state, ""),
        "SUBMIT_TIME": time.strftime("%b %d %H:%M", time.localtime(job["submitted"])),
    }


def bjobs(cluster: Cluster, pairs: list[tuple[str, str]], operands: list[str]) -> str:
    options = dict(pairs)
    rows = [
        fields_of(job, index, task)
        for job in cluster.jobs.values()
        for index, task in job["tasks"].items()
        if options.get("-u", user()) in ("all", job["owner"])
        and ("-a" in options or task["state"] != "ended")
    ]
    if operands:
        raise Mistake(f"Job <{operands[0]}> is not found\n")
    if "-json" in options:
        if "-o" not in options:
            raise Mistake("bjobs: The -json option must be used with the -o option\n")
        names = [name.upper() for name in options["-o"].split()]
        if unknown := [name for name in names if rows and name not in rows[0]]:
            raise Mistake(f"bjobs: {unknown[0]} is not a valid field name\n")
        records = [{name: row[name] for name in names} for row in rows]
        return json.dumps({"COMMAND": "bjobs", "JOBS": len(records), "RECORDS": records}, indent=2) + "\n"
    if not rows:
        raise Mistake("No job found\n" if "-a" in options else "No unfinished job found\n")
    lines = ["JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME"]
    lines += [f"{row['JOBID']:7} {row['USER']:7} {row['STAT']:5} {row['JOB_NAME'][-10:]}" for row in rows]
    return "\n".join(lines) + "\n"


def named_tasks(
    cluster: Cluster, pairs: list[tuple[str, str]], operands: list[str]
) -> list[tuple[str, Job, list[Task]]]:
    """What a command is about: a name of jobs, or ids. Each with its id and the tasks that have not ended."""
    name = dict(pairs).get("-J")
    if name is not None:
        if operands != ["0"]:
            raise Mistake("this double wants the job ID 0 beside -J\n")
        jobs = [job for job in cluster.jobs.values() if job["name"] == name and job["owner"] == user()]
        found = [(job["number"], job, unfinished(list(job["tasks"].values()))) for job in jobs]
        if not any(tasks for _, _, tasks in found):
            raise Mistake(f"Job <{name}>: No matching job found\n")
        return found
    if not operands:
        raise Mistake("Job ID or one of the options -g, -J, -m, -u, -q is needed\n")
    named = []
    for operand in operands:
        match = re.fullmatch(r"([0-9]+)(?:\[([0-9]+)\])?", operand)
        job = cluster.jobs.get(match[1]) if match else None
        if match is None or job is None or (match[2] and match[2] not in job["tasks"]):
            named.append((operand, Job(), list[Task]()))
        else:
            tasks = [job["tasks"][match[2]]] if match[2] else list(job["tasks"].values())
            named.append((operand, job, unfinished(tasks)))
    return named


def unfinished(tasks: list[Task]) -> list[Task]:
    return [task for task in tasks if task["state"] != "ended"]


def change(cluster: Cluster, command: str, pairs: list[tuple[str, str]], operands: list[str]) -> str:
    told, errors = "", ""
    for name, job, tasks in named_tasks(cluster, pairs, operands):
        if not job:
            errors += f"Job <{name}>: No matching job found\n"
        elif not tasks:
            errors += f"Job <{name}>: Job has already finished\n"
        elif command == "bresume":
            job["hold"] = ""
            told += f"Job <{name}> is being resumed\n"
        else:
            for task in tasks:
                cluster.delete(task, signal.SIGINT)
            told += f"Job <{name}> is being terminated\n"
    if errors:
        raise Mistake(errors)
    return told


def bqueues(cluster: Cluster) -> str:
    counts = {"RUN": 0, "PEND": 0, "PSUSP": 0, "EXIT": 0, "DONE": 0}
    for job in cluster.jobs.values():
        for task in job["tasks"].values():
            counts[state_of(job, task)] += 1
    waiting = counts["PEND"] + counts["PSUSP"]
    running = counts["RUN"]
    figures = f"{waiting + running:5} {waiting:5} {running:5}"
    return f"""\

QUEUE: {QUEUE}
  -- For normal low priority jobs, running only if hosts are lightly loaded. This is the default queue.

PARAMETERS/STATISTICS
PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN SSUSP USUSP  RSV PJOBS
 30    0  Open:Active       -    -    -    - {figures}     0     0    0     0
Interval for a host to accept two jobs is 0 seconds

MAXIMUM LIMITS:
 RUNLIMIT
 4320.0 min of {HOST}

SCHEDULING PARAMETERS
           r15s   r1m  r15m   ut      pg    io   ls    it    tmp    swp    mem
 loadSched   -     -     -     -       -     -    -     -     -      -      -
 loadStop    -     -     -     -       -     -    -     -     -      -      -

USERS: all
HOSTS:  all
------------------------------------------------------------------------------

QUEUE: night
  -- For large heavy duty jobs, running off hours and weekends.

PARAMETERS/STATISTICS
PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN SSUSP USUSP  RSV PJOBS
 40    0  Open:Active       -    -    -    -     0     0     0     0     0    0     0

USERS: all
HOSTS:  {HOST} night_hosts/
"""


def bhosts(cluster: Cluster) -> str:
    used = sum(
        job["slots"]
        for job in cluster.jobs.values()
        for task in job["tasks"].values()
        if task["state"] == "running"
    )
    status = "ok" if used < SLOTS else "closed_Full"
    heads = "HOST_NAME          STATUS          JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV\n"
    return f"{heads}{HOST:18} {status:15} -     {SLOTS}  {used:5}  {used:5}      0      0      0\n"


LSHOSTS = f"""\
HOST_NAME                       type       model  cpuf ncpus maxmem maxswp server RESOURCES
{HOST}                          X86_64 Intel_EM64T  60.0    {SLOTS}  15.6G      -    Yes (mg fast si00_600)
login1                          X86_64 Intel_EM64T  60.0     4   7.6G      -     No ()
"""
LSID = f"""\
IBM Spectrum LSF Standard 10.1.0.14, Mar 01 2024
Copyright International Business Machines Corp. 1992, 2016.

My cluster name is {CLUSTER}
My master name is {HOST}
"""


def run(cluster: Cluster, command: str, words: list[str]) -> str:
    pairs, operands = read_options(command, words)
    if command == "bsub":
        return bsub(cluster, pairs, operands)
    if command == "bjobs":
        return bjobs(cluster, pairs, operands)
    if command in ("bresume", "bkill"):
        return change(cluster, command, pairs, operands)
    if command == "bqueues":
        return bqueues(cluster)
    if command == "bhosts":
        return bhosts(cluster)
    return LSHOSTS if command == "lshosts" else LSID


def main() -> None:
    folder, _, command, *words = sys.argv[1:]
    order = fail_as_told(pathlib.Path(folder), command)
    try:
        with locked(pathlib.Path(folder)) as cluster:
            output = run(cluster, command, words)
    except Mistake as mistake:
        answer(order, "", mistake.text, mistake.status)
    else:
        answer(order, output)


if __name__ == "__main__":
    main()
