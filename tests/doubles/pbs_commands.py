"""The commands of OpenPBS and of Torque: `python -I pbs_commands.py FOLDER DIALECT COMMAND ARGUMENTS`.

Written after the sources of OpenPBS 23 (src/cmds, src/server/stat_job.c, src/lib/Liblog/pbs_messages.c) and of Torque 6
(src/cmds, src/include/pbs_error_db.h), and their manual pages.
"""

import getopt
import os
import pathlib
import pwd
import re
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.doubles.jobs import SLOTS, Cluster, Job, Task, answer, fail_as_told, locked
else:
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    from jobs import SLOTS, Cluster, Job, Task, answer, fail_as_told, locked

SERVER = "pbs1.example.org"
HOST = "node1"
QUEUE = "workq"
OPTIONS = {
    # getopt strings of src/cmds/*.c
    "pbs": {
        "qsub": "a:A:c:C:e:fhIj:J:k:l:m:M:N:o:p:P:q:r:R:S:u:v:VW:XGz",
        "qstat": "ainpqrstwxu:fGHJMQEBW:T1F:D:",
        "qselect": "a:A:c:h:HJl:N:p:q:r:s:t:Tu:xP:",
        "qdel": "W:x",
        "qrls": "h:",
        "pbsnodes": "acC:dD:F:HjlLoqrs:Sv",
    },
    "torque": {
        "qsub": "a:A:b:c:C:d:D:e:EfF:hi:Ij:J:k:K:l:L:m:M:nN:o:p:P:q:r:S:t:T:u:v:Vw:W:Xxz",
        "qstat": "acCeE:filn1pqrstu:xGMQRBW:",
        "qselect": "a:A:ec:h:l:N:p:q:r:s:u:",
        "qdel": "ab:cm:pW:t:",
        "qrls": "h:t:",
        "pbsnodes": "ad:lN:nA:m:opqrcs:x",
    },
}
RESOURCES = ("ncpus", "mem", "vmem", "host", "vnode", "arch", "ngpus", "si00", "model", "walltime", "cput")
"""Resources of the OpenPBS server."""
LONGEST_NAME = {"pbs": 230, "torque": 15}
UNKNOWN = {"pbs": "Unknown Job Id", "torque": "Unknown Job Id Error"}


class Mistake(Exception):
    """The text of an error of a command, and its exit code."""

    def __init__(self, text: str, status: int = 1) -> None:
        self.text = text
        self.status = status
        super().__init__(text)


def user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


# The words of a submission


def split_variables(text: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in re.split(r"(?<!\\),", text) if word)
    return {name: value if equals else os.environ.get(name, "") for name, equals, value in pairs}


def read_requests(dialect: str, words: list[str]) -> dict[str, str]:
    requests: dict[str, str] = {}
    for word in words:
        for request in word.split(","):
            name, _, value = request.partition("=")
            if not value:
                raise Mistake("qsub: illegal -l value\n" + USAGE, 2)
            requests[name] = value
    if dialect == "pbs":
        if "nodes" in requests:
            raise Mistake("qsub: nodes is not used by this double\n", 2)
        for name in requests:
            if name not in (*RESOURCES, "select", "place"):
                raise Mistake(f"qsub: Unknown resource Resource_List.{name}\n", 163)
        for name in ("ncpus", "mem"):
            if name in requests and "select" in requests:
                reason = '"-lresource=" cannot be used with "select" or "place", resource is:'
                raise Mistake(f"qsub: {reason} {name}\n", 171)
        seen = []
        for part in requests.get("select", "1:ncpus=1").split(":")[1:]:
            name = part.partition("=")[0]
            if name not in RESOURCES:
                raise Mistake(f"qsub: Unknown resource Resource_List.select {name}\n", 163)
            if name in seen:
                reason = "duplicated resource within a section of a select specification, resource is:"
                raise Mistake(f"qsub: {reason} {name}\n", 184)
            seen.append(name)
    return requests


def slots_of(dialect: str, requests: dict[str, str]) -> int:
    text = requests.get("select", "") if dialect == "pbs" else requests.get("nodes", "")
    match = re.search(r"(?:ncpus|ppn)=([0-9]+)", text)
    return int(match[1]) if match else 1


USAGE = "usage: qsub [-a date_time] [-A account_string] [-c interval] ...\n"


def qsub(cluster: Cluster, dialect: str, pairs: list[tuple[str, str]], operands: list[str]) -> str:
    options = dict(pairs)
    if operands:
        raise Mistake("qsub: script file: No such file or directory\n", 1)
    name = options.get("-N", "STDIN")
    if len(name) > LONGEST_NAME[dialect] or not name[:1].isalpha():
        raise Mistake(f"qsub: illegal -N value\n{USAGE}", 2)
    if options.get("-r", "y") not in ("y", "n"):
        raise Mistake(f"qsub: illegal -r value\n{USAGE}", 2)
    indexes = read_indexes(dialect, options)
    if indexes is not None and options.get("-r") == "n" and dialect == "pbs":
        raise Mistake("qsub:  cannot submit non-rerunable Array Job\n", 2)
    queue = options.get("-q", QUEUE).partition("@")[0]
    if queue != QUEUE:
        error = "Unknown queue"
        raise Mistake(f"qsub: {error}{' MSG=cannot locate queue' if dialect == 'torque' else ''}\n", 170)
    requests = read_requests(dialect, [value for option, value in pairs if option == "-l"])
    variables = split_variables(options.get("-v", ""))
    own = {
        "PBS_O_HOME": os.environ.get("HOME", ""),
        "PBS_O_LOGNAME": user(),
        "PBS_O_PATH": os.environ.get("PATH", ""),
        "PBS_O_SHELL": "/bin/bash",
        "PBS_O_HOST": SERVER,
        "PBS_O_WORKDIR": os.getcwd(),
        "PBS_O_QUEUE": queue,
        "PBS_O_SYSTEM": "Linux",
    }
    number = str(cluster.state["next"])
    brackets = "" if indexes is None else "[{index}]"
    index_variable = "PBS_ARRAY_INDEX" if dialect == "pbs" else "PBS_ARRAYID"
    job: Job = {
        "name": name,
        "owner": user(),
        "hold": "u" if "-h" in options else "",
        "queue": queue,
        "options": options,
        "requests": requests,
        "slots": slots_of(dialect, requests),
        "is_array": indexes is not None,
        "variables": variables,
        "own_variables": own,
        "environment": {"PATH": os.environ.get("PATH", ""), "HOME": os.environ.get("HOME", ""), **own},
        "job_variables": {
            "PBS_JOBID": f"{number}{brackets}.{SERVER}",
            "PBS_ENVIRONMENT": "PBS_BATCH",
            "PBS_QUEUE": queue,
            index_variable: "{index}" if indexes is not None else "",
        },
        "arguments": sys.argv[4:],
    }
    cluster.add(job, indexes, sys.stdin.read())
    return f"{number}{'[]' if indexes is not None else ''}.{SERVER}\n"


def read_indexes(dialect: str, options: dict[str, str]) -> list[int] | None:
    text = options.get("-J" if dialect == "pbs" else "-t")
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if last < first or (dialect == "pbs" and last == first):
        raise Mistake("qsub: illegal -J value\n" if dialect == "pbs" else "qsub: illegal -t value\n", 2)
    return list(range(first, last + 1))


# Listings


def letter(dialect: str, job: Job, task: Task) -> str:
    if task["state"] == "ended":
        if dialect == "torque":
            return "C"
        return "X" if job["is_array"] and not is_over(job) else "F"
    if task["state"] == "running":
        return "E" if "deleted" in task else "R"
    # OpenPBS shows the waiting jobs of a held array as queued.
    return "H" if job["hold"] and not (job["is_array"] and dialect == "pbs") else "Q"


def is_over(job: Job) -> bool:
    return all(task["state"] == "ended" for task in job["tasks"].values())


def letter_of_array(job: Job) -> str:
    states = {task["state"] for task in job["tasks"].values()}
    if states == {"ended"}:
        return "F"
    if job["hold"]:
        return "H"
    return "Q" if states == {"waiting"} else "B"


def shown_time(seconds: float) -> str:
    return time.ctime(seconds)


def attributes(dialect: str, job: Job, index: str | None, task: Task | None) -> list[tuple[str, str]]:
    """The attributes of a job, a job of an array, or an array (no task), in the order of the server."""
    state = letter(dialect, job, task) if task is not None else letter_of_array(job)
    name = job["name"]
    if dialect == "torque" and job["is_array"] and index is not None:
        name = f"{name}-{index}"
    rows = [("Job_Name", name), ("Job_Owner", f"{job['owner']}@{SERVER}"), ("job_state", state)]
    rows += [("queue", job["queue"]), ("server", SERVER), ("Checkpoint", "u")]
    rows += [("ctime", shown_time(job["submitted"])), ("Error_Path", f"{SERVER}:/root/{name}.e1")]
    if task is not None and task["state"] == "running":
        rows.append(("exec_host", f"{HOST}/0" if dialect == "torque" else f"{HOST}/0*{job['slots']}"))
        if dialect == "pbs":
            rows.append(("exec_vnode", f"({HOST}:ncpus={job['slots']})"))
    rows += [("Hold_Types", job["hold"] or "n"), ("Join_Path", job["options"].get("-j", "n"))]
    rows += [("Mail_Points", job["options"].get("-m", "a")), ("mtime", shown_time(time.time()))]
    rows += [("Output_Path", f"{SERVER}:{job['options'].get('-o', '')}"), ("Priority", "0")]
    rows += [("qtime", shown_time(job["submitted"]))]
    rows += [("Rerunable", "False" if job["options"].get("-r") == "n" else "True")]
    rows += [(f"Resource_List.{key}", value) for key, value in sorted(job["requests"].items())]
    if task is not None and "begun" in task:
        rows += [("stime", shown_time(task["begun"])), ("session_id", str(task["pid"]))]
    variables = {**job["own_variables"], **job["variables"]}
    if dialect == "torque" and index:
        variables["PBS_ARRAYID"] = index
    rows.append(("Variable_List", ",".join(f"{key}={value}" for key, value in variables.items())))
    if comment := job.get("comment") or ("Job held by its owner" if state == "H" else ""):
        rows.append(("comment", comment))
    rows.append(("etime", shown_time(job["submitted"])))
    if task is not None and "starts" in task and dialect == "pbs":
        rows.append(("run_count", str(task["starts"])))
    if task is not None and "status" in task:
        rows.append(("Exit_status" if dialect == "pbs" else "exit_status", str(task["status"])))
    if job["is_array"] and dialect == "pbs":
        waiting = [key for key, known in job["tasks"].items() if known["state"] == "waiting"]
        if task is None:
            keys = list(job["tasks"])
            rows += [("array", "True"), ("array_indices_submitted", f"{keys[0]}-{keys[-1]}")]
            rows += [("array_indices_remaining", ",".join(waiting) or "-")]
        else:
            rows += [("array_id", f"{job['number']}[].{SERVER}"), ("array_index", index or "")]
    rows.append(("Submit_arguments" if dialect == "pbs" else "submit_args", " ".join(job["arguments"])))
    return rows


def folded(name: str, value: str, width: int = 79) -> str:
    """An attribute as `qstat -f` prints it without -w or -1: at a comma where it can, after a tab."""
    text, start, first, out = value.split(","), len(name) + 7, True, f"    {name} = "
    for place, part in enumerate(text):
        if len(part) + start < width:
            out, start = out + part, start + len(part)
        else:
            if not first:
                out, start = out + "\n\t", 9
            for char in part:
                out, start = out + char, start + 1
                if start > width:
                    out, start = out + "\n\t", 8
        if place < len(text) - 1:
            out, first = out + ",", False
    return out


def record(head: str, rows: list[tuple[str, str]], wide: bool) -> str:
    lines = [f"    {key} = {value}" if wide else folded(key, value) for key, value in rows]
    return "\n".join([head, *lines]) + "\n\n"


def listing(cluster: Cluster, dialect: str, options: dict[str, str]) -> str:
    wide = ("-w" if dialect == "pbs" else "-1") in options
    if "-f" not in options or ("-u" in options and not (dialect == "pbs" and wide)):
        return table(cluster)
    text = ""
    for number, job in cluster.jobs.items():
        gone = is_over(job) and "-x" not in options and dialect == "pbs"
        if gone or options.get("-u", job["owner"]) != job["owner"]:
            continue
        if not job["is_array"]:
            text += record(
                f"Job Id: {number}.{SERVER}", attributes(dialect, job, None, job["tasks"][""]), wide
            )
            continue
        if dialect == "pbs" or "-t" not in options:
            rows = attributes(dialect, job, None, None)
            text += record(f"Job Id: {number}[].{SERVER}", rows, wide)
        if "-t" in options:
            for index, task in job["tasks"].items():
                rows = attributes(dialect, job, index, task)
                text += record(f"Job Id: {number}[{index}].{SERVER}", rows, wide)
    return text


def table(cluster: Cluster) -> str:
    lines = ["", f"{SERVER}: ", f"{'':>60}Req'd  Req'd   Elap", "Job ID          Username Queue    Jobname"]
    lines += [
        f"{number + '.pbs1':15} {job['owner']:8.8} {job['queue']:8}" for number, job in cluster.jobs.items()
    ]
    return "\n".join(lines) + "\n"


def show_server(dialect: str) -> str:
    version = "23.06.06" if dialect == "pbs" else "6.1.3"
    rows = [("server_state", "Active"), ("server_host", SERVER), ("scheduling", "True"), ("total_jobs", "0")]
    rows += [("state_count", "Transit:0 Queued:0 Held:0 Waiting:0 Running:0 Exiting:0 Begun:0 ")]
    rows += [("default_queue", QUEUE), ("log_events", "511"), ("pbs_version", version)]
    return record(f"Server: {SERVER}", rows, True)


def show_queues(cluster: Cluster) -> str:
    counts = {"Running": 0, "Queued": 0, "Held": 0}
    for job in cluster.jobs.values():
        for task in job["tasks"].values():
            if task["state"] == "running":
                counts["Running"] += 1
            elif task["state"] == "waiting":
                counts["Held" if job["hold"] else "Queued"] += 1
    shown = (
        f"Transit:0 Queued:{counts['Queued']} Held:{counts['Held']} Waiting:0 Running:{counts['Running']}"
        " Exiting:0 Begun:0 "
    )
    rows = [("queue_type", "Execution"), ("total_jobs", str(sum(counts.values()))), ("state_count", shown)]
    rows += [("resources_max.walltime", "72:00:00"), ("enabled", "True"), ("started", "True")]
    routing = [
        ("queue_type", "Route"),
        ("route_destinations", QUEUE),
        ("enabled", "True"),
        ("started", "True"),
    ]
    return record(f"Queue: {QUEUE}", rows, True) + record("Queue: routeq", routing, True)


def qstat(cluster: Cluster, dialect: str, pairs: list[tuple[str, str]], operands: list[str]) -> str:
    options = dict(pairs)
    names = [option for option, _ in pairs]
    if dialect == "torque" and "-1" in names and "-f" in names and names.index("-1") < names.index("-f"):
        raise Mistake("qstat: conflicting options.\n -f incompatible with one or more options.\n", 2)
    if operands:
        raise Mistake(f"qstat: {UNKNOWN[dialect]} {operands[0]}\n", 153)
    if "-B" in options:
        return show_server(dialect)
    if "-Q" in options:
        return show_queues(cluster)
    if "-x" in options and (cluster.folder / "no-history").exists():
        raise Mistake("qstat: PBS is not configured to maintain job history \n", 193)
    return listing(cluster, dialect, options)


def qselect(cluster: Cluster, dialect: str, pairs: list[tuple[str, str]], operands: list[str]) -> str:
    wanted = dict(pairs).get("-u", user())
    alive = [job for job in cluster.jobs.values() if job["owner"] == wanted]
    if dialect == "pbs":
        alive = [job for job in alive if not is_over(job)]
    return "".join(f"{job['number']}{'[]' if job['is_array'] else ''}.{SERVER}\n" for job in alive)


def named_tasks(cluster: Cluster, dialect: str, command: str, batch_id: str) -> tuple[Job, list[Task]] | str:
    """The tasks of an id, or an error."""
    match = re.fullmatch(r"([0-9]+)(?:\[([0-9]*)\])?(?:\.[A-Za-z0-9.-]+)?", batch_id)
    if match is None:
        return f"{command}: illegally formed job identifier: {batch_id}\n"
    job = cluster.jobs.get(match[1])
    if (
        job is None
        or (match[2] is not None) != job["is_array"]
        or (match[2] and match[2] not in job["tasks"])
    ):
        return f"{command}: {UNKNOWN[dialect]} {batch_id}\n"
    tasks = [job["tasks"][match[2]]] if match[2] else list(job["tasks"].values())
    if all(task["state"] == "ended" for task in tasks):
        if dialect == "torque":
            reason = "Request invalid for state of job MSG=invalid state for job - COMPLETE"
            return f"{command}: {reason} {batch_id}\n"
        return f"{command}: Job has finished {batch_id}\n"
    return job, tasks


def change(cluster: Cluster, dialect: str, command: str, ids: list[str]) -> str:
    errors = ""
    for batch_id in ids:
        found = named_tasks(cluster, dialect, command, batch_id)
        if isinstance(found, str):
            errors += found
        elif command == "qrls":
            found[0]["hold"] = ""
        else:
            for task in found[1]:
                cluster.delete(task)
    if errors:
        raise Mistake(errors, 153)
    return ""


def pbsnodes(cluster: Cluster, dialect: str) -> str:
    used = sum(
        job["slots"]
        for job in cluster.jobs.values()
        for task in job["tasks"].values()
        if task["state"] == "running"
    )
    if dialect == "torque":
        rows = [
            ("state", "free"),
            ("power_state", "Running"),
            ("np", str(SLOTS)),
            ("properties", "fast,si00_600"),
        ]
        rows += [("ntype", "cluster")]
        rows += [("jobs", f"0-{used - 1}/1.{SERVER}")] if used else []
        rows += [
            ("status", "opsys=linux,totmem=33000000kb,availmem=1kb,physmem=16384000kb,ncpus=16,state=free")
        ]
        rows += [("mom_service_port", "15002"), ("mom_manager_port", "15003")]
    else:
        rows = [
            ("Mom", f"{HOST}.example.org"),
            ("Port", "15002"),
            ("pbs_version", "23.06.06"),
            ("ntype", "PBS"),
        ]
        rows += [("state", "free"), ("pcpus", str(SLOTS)), ("resources_available.arch", "linux")]
        rows += [("resources_available.host", HOST), ("resources_available.mem", "16384000kb")]
        rows += [("resources_available.model", "epyc"), ("resources_available.ncpus", str(SLOTS))]
        rows += [("resources_available.si00", "600"), ("resources_available.vnode", HOST)]
        rows += [("resources_assigned.mem", "0kb"), ("resources_assigned.ncpus", str(used))]
        rows += [("resv_enable", "True"), ("sharing", "default_shared"), ("license", "l")]
    return "\n".join([HOST, *(f"     {key} = {value}" for key, value in rows)]) + "\n\n"


def run(cluster: Cluster, dialect: str, command: str, words: list[str]) -> str:
    known: dict[str, str] = OPTIONS[dialect]
    try:
        pairs, operands = getopt.getopt(words, known[command])
    except getopt.GetoptError as error:
        text = f"{command}: invalid option -- '{error.opt}'\nusage: {command} ...\n"
        raise Mistake(text, 2) from None
    calls: dict[str, Any] = {"qsub": qsub, "qstat": qstat, "qselect": qselect}
    if command in calls:
        text = calls[command](cluster, dialect, pairs, operands)
        assert isinstance(text, str)
        return text
    if command == "pbsnodes":
        return pbsnodes(cluster, dialect)
    if not operands:
        raise Mistake(f"usage: {command} job_identifier...\n", 2)
    return change(cluster, dialect, command, operands)


def main() -> None:
    folder, dialect, command, *words = sys.argv[1:]
    order = fail_as_told(pathlib.Path(folder), command)
    try:
        with locked(pathlib.Path(folder)) as cluster:
            output = run(cluster, dialect, command, words)
    except Mistake as mistake:
        answer(order, "", mistake.text, mistake.status)
    else:
        answer(order, output)


if __name__ == "__main__":
    main()
