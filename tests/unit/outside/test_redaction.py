"""What a transcript must not tell: each kind of private word is planted, and looked for afterwards."""

from __future__ import annotations

import pytest

from pilotage.outside.batch.pbs import output
from pilotage.outside.batch.redaction import Redactor

TOKEN = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhZGEiLCJleHAiOjE3MDB9.c2lnbmF0dXJlMTIz"
PLANTED = (
    "ada",
    "lovelace@maths.cam.ac.uk",
    "node17.cluster.cam.ac.uk",
    "cam.ac.uk",
    "131.111.8.42",
    "2001:630:212:8::",
    "/home/ada/thesis",
    "/scratch/secret-project/x",
    TOKEN,
    "hunter2",
    "AKIAIOSFODNN7EXAMPLE9xyzABCDEFGH",
    "babbage",
    "/etc/private",
)
JOBS = f"""\
Job Id: 12.pbs.cam.ac.uk
    Job_Name = pilotage-01
    Job_Owner = ada@login1.cam.ac.uk
    job_state = R
    exec_host = node17/0*2
    Mail_Users = lovelace@maths.cam.ac.uk
    Variable_List = PBS_O_HOME=/home/ada,MY_TOKEN={TOKEN},DB=x\\,y,PILOTAGE_STAMP=p
\tilotage-01,PILOTAGE_PROPERTIES=owner=me;cores=1,WHERE=/etc/private
    comment = Job run at Mon Nov 23 on (node17.cluster.cam.ac.uk:ncpus=2) from 131.111.8.42
    Submit_arguments = -v SECRET=hunter2 /home/ada/thesis/run.sh

Job Id: 13.pbs.cam.ac.uk
    Job_Name = babbage-engine
    Job_Owner = babbage@login1.cam.ac.uk
    job_state = R

"""


@pytest.mark.parametrize(
    "text",
    [
        JOBS,
        f"qsub: password=hunter2 refused for ada, see /scratch/secret-project/x and {TOKEN}\n",
        "node17.cluster.cam.ac.uk 2001:630:212:8:a:b:c:d AKIAIOSFODNN7EXAMPLE9xyzABCDEFGH\n",
        "<JB_owner>babbage</JB_owner><JB_env_list><x>hunter2</x></JB_env_list>",
    ],
)
def test_nothing_private_is_left(text: str) -> None:
    clean = Redactor("ada", ("login1",))(text)
    assert [word for word in PLANTED if word in text], "something is planted"
    assert not [word for word in PLANTED if word in clean], clean


def test_what_an_adapter_reads_is_left() -> None:
    clean = Redactor("ada")(JOBS)
    [record] = output.read_jobs(clean, "me")
    [task] = output.read_tasks([record])
    assert (task.stamp, task.index, task.native) == ("pilotage-01", 0, "R")
    assert output.read_job_properties(record) == {"owner": "me", "cores": "1"}
    assert task.batch_id.startswith("12.machine")


def test_equal_words_stay_equal() -> None:
    redactor = Redactor("ada")
    first, again = redactor("a1.cam.ac.uk b2.cam.ac.uk"), redactor("b2.cam.ac.uk a1")
    one, two = first.split()
    assert one != two
    assert again.split() == [two, one.partition(".")[0]]


@pytest.mark.parametrize(
    "text",
    [
        "qstat -f -w -t -u me",
        "resources_available.ncpus = 16",
        "-l select=1:ncpus=2:mem=100mb",
        "/bin/sh -o /dev/null",
        "rusage[mem=100MB/host]",
        '{"JOBID": "12", "STAT": "RUN"}',
        "PILOTAGE_STAMP=@STAMP@,PILOTAGE_PROPERTIES=stamp=@STAMP@;cores=1",
        "Mon Nov 23 10:11:12 2026",
    ],
)
def test_words_of_batch_systems_stay(text: str) -> None:
    assert Redactor("ada")(text) == text
