"""Values of options, good and bad ones, for a comparison with the parser of the real Slurm."""

from __future__ import annotations

from typing import Final

_TIMES: Final = (
    "5", "5:30", "1:05:30", "1-2", "1-2:3", "1-2:3:4", "0", "infinite", "UNLIMITED", "-1", "60:60:60", "90:00",
    "1-", "1.5", "5m", "soon", " 5", "00:05",
)  # fmt: skip
_SIZES: Final = (
    "100", "100K", "100m", "100M", "100MB", "1G", "1g", "1GB", "0", "1.5G", "-1", "G", "100X", "100 M", "0x10",
)  # fmt: skip
_COUNTS: Final = ("1", "01", "+1", "0", "-1", "1.5", "x", "1k", " 1", "1 ", "2x", "1,000")
_GPUS: Final = ("0", "1x", ":1", "gpu:", "-1")

SBATCH_VALUES: Final[dict[str, tuple[str, ...]]] = {
    "account": ("nosuch",),
    "array": (
        "0-3", "3", "1,3,5", "3,1,2", "1,1,2", "[1-3]", "1-3,", ",1-3", "1-3:2", "1-3:0", "3-1", "0-3%2",
        "0-3%0", "0-3%",
        "1-3:", "-1", "a", "1-3;5", "1--3", "1 2", "1-2-3", "[1-3]%2", "0-1,0-1", "1.5", "1-3%1%2", "0", "01-03",
    ),
    "begin": (),
    "chdir": ("/tmp",),
    "comment": ("", "a b", "ä", "a\nb", "x" * 300),
    "constraint": ("first", "first&first", "first|first"),
    "cpus-per-gpu": (),
    "cpus-per-task": _COUNTS,
    "dependency": (
        "", "singleton", "afterok:1", "nosuch:1", "afterok", "afterok:", "afterok:x", ":1", "afterok:1:", "afterok:1,",
        "afterok=1", "singleton,singleton",
    ),
    "error": ("e.txt", "e-%j.txt", "%", "e-%5j"),
    "exclude": (),
    "export": ("ALL", "NONE", "all", "A=1", "ALL,A=1", "A=1,B", "", "A=a b", "NIL"),
    "gpus": (),
    "gpus-per-node": (),
    "gpus-per-task": (),
    "gres": (),
    "input": ("/dev/null", "in-%j"),
    "job-name": ("n", "", "a b", "ä", "x" * 255, "x" * 256, "x" * 1024, "a/b", "a[1]", "a\nb", "a\tb", "%j", "-n"),
    "mail-type": ("END", "end", "FAIL,END", "NONE", "ALL", "BEGIN", "nosuch", "END,nosuch", "",
    "TIME_LIMIT_80", "END,"),
    "mail-user": ("a@b.example", "root", "", "a@b.example,c@d.example", "a b@c.example"),
    "mem": _SIZES,
    "mem-per-cpu": _SIZES,
    "mem-per-gpu": (),
    "nodelist": ("n1",),
    "nodes": ("1", "1-1", "1-2", "0", "x", "-1", "1-", "01", "+1", "1,"),
    "ntasks": _COUNTS,
    "ntasks-per-node": _COUNTS,
    "open-mode": ("append", "truncate", "a", "t", "APPEND", "app", "x", ""),
    "output": ("o.txt", "o-%j-%x.txt", "%", "o[1].txt", "none", "/dev/null", "o-%q"),
    "partition": ("short", "long", "short,long", "nosuch", "short,nosuch", "short,", "short,,long"),
    "signal": (
        "USR1", "SIGUSR1", "usr1", "10", "B:USR1", "B:10@60", "USR1@60", "USR1@", "@60", "nosuch", "0", "99", "R:USR1",
        "B:", "USR1@x", "USR1@-1", "USR1@70000", "TERM@10:5", "B:TERM@10",
    ),
    "tasks-per-node": _COUNTS,
    "time": _TIMES,
    "tmp": ("0", "G", "100X", "-1", "0x10"),
    "wrap": ("", "true", "exit 3", "a\nb"),
}  # fmt: skip
"""By long name. Empty: the cluster of the tests decides, not the parser."""

_STATES: Final = (
    "R", "PD", "pending", "RUNNING,PENDING", "all", "CD", "NF", "nosuch", "R,nosuch", "CG", "TO", "OOM", "S",
    "BF", "PR", "RV",
    "DL", "CF", "SO", "SE", "ST", "RQ", "RH", "RD", "SI", "RS", "completing", "out_of_memory",
)  # fmt: skip
_MOMENTS: Final = (
    "2026-01-02", "2026-01-02T03:04", "2026-01-02T03:04:05", "0102", "01/02", "01/02/26", "010226", "noon", "midnight",
    "teatime", "fika", "elevenses", "today", "tomorrow", "yesterday", "now", "now-1hour", "now-2days",
    "now+3weeks", "now-5",
    "now-1minutes", "10:30", "10:30:15", "10:30AM", "2:30pm", "01.02.26", "2026-13-01", "2026-02-30",
    "25:00", "nosuch", "10",
    "now-", "now-xdays", "01/02-10:30", "2026-01-02-10:30",
)  # fmt: skip
_LETTERS: Final = "aAbBcCdDeEfFgGhHiIjJkKlLmMnNoOpPqQrRsStTuUvVwWxXyYzZ"

QUERY_VALUES: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "squeue": {
        "states": _STATES,
        "format": (*(f"%{letter}" for letter in _LETTERS), "%.10i", "%10j", "text", "%", "%i|%j", "%.i"),
        "Format": (
            "jobid",
            "JobID",
            "jobid:10",
            "jobid,name",
            "nosuch",
            "jobid:.10",
            "jobid:",
            "jobid,,name",
            "name:x",
        ),
        "sort": ("i", "-i", "+i", "t,-i", "P,t,-p", "nosuch", "?", "S"),
        "jobs": ("1", "1,2", "x", "1_2", "1_[1-2]", "1+1", "-1", "0"),
        "user": ("root", "root,root", "nosuchuser", "0", "99999"),
        "name": ("x", "x,y", "a b"),
        "partition": ("short", "nosuch", "short,long"),
        "account": ("x", "x,y"),
        "nodelist": ("n1",),
        "priority": (),
        "iterate": ("x", "-1"),
        "start": (),
    },
    "sacct": {
        "starttime": _MOMENTS,
        "endtime": ("now", "2026-01-02", "nosuch", "2099-01-01"),
        "state": _STATES,
        "format": (
            "jobid",
            "JobID",
            "jobid,state",
            "nosuch",
            "jobid%20",
            "jobid%-20",
            "jobid%",
            "jobid%x",
            "all",
            "jobid,,state",
            "elapsed,cputime,maxrss,reqmem,alloccpus,nnodes,ntasks",
            "start,end,submit,eligible",
            "user,uid,gid,group,account",
            "exitcode,derivedexitcode,comment,workdir,nodelist,partition,qos,timelimit,timelimitraw,totalcpu,jobname",
            "systemcpu,usercpu,avecpu,averss,maxvmsize,tresusageintot,reqtres,alloctres,consumedenergy,reason,priority",
        ),
        "jobs": ("1", "1,2", "x", "1_2", "1.batch", "1.0", "1_1.batch", "-1"),
        "user": ("root", "nosuchuser", "root,root"),
        "units": ("K", "M", "G", "X", "k"),
        "name": ("x", "x,y"),
        "partition": ("short", "nosuch"),
        "delimiter": (";", "||"),
        "accounts": ("x", "x,y"),
        "nodelist": ("n1",),
        "timelimit-min": ("10", "x"),
    },
    "scancel": {
        "jobname": ("nosuch",),
        "state": ("PENDING", "pending", "PD", "RUNNING", "SUSPENDED", "nosuch", "COMPLETED", "R", "S", "CG"),
        "signal": ("USR1", "SIGUSR1", "usr1", "9", "0", "nosuch", "99", "-1", "KILL"),
        "user": ("root", "nosuchuser"),
        "name": ("nosuch",),
        "partition": ("short", "nosuch"),
        "account": ("nosuch",),
        "nodelist": ("n1",),
        "qos": ("normal",),
    },
    "sinfo": {
        "states": ("idle", "IDLE", "alloc", "idle,mixed", "nosuch", "down", "drain", "all", "resp", "i"),
        "format": (*(f"%{letter}" for letter in _LETTERS), "%.10P", "text", "%", "%P|%D"),
        "Format": (
            "nodelist",
            "NodeList,partition",
            "nosuch",
            "cpusstate:20",
            "memory,freemem,cpusload,gres,features",
        ),
        "sort": ("P", "-P", "P,-t", "nosuch", "?"),
        "nodes": ("n1",),
        "partition": ("short", "nosuch", "short,long"),
        "iterate": ("x", "-1"),
    },
}
"""By command and long name: values of questions, and of `scancel` for jobs that do not exist."""
