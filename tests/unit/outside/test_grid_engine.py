"""Readers of Grid Engine's output, on outputs of real commands (8.1.9), and the arguments of its commands."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from pilotage.core.errors import InvalidInput, Unreachable
from pilotage.core.policy.batch_systems.sge import SgeOptions
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.command_client import UnreadableOutput
from pilotage.outside.batch.runner import CommandResult
from pilotage.outside.batch.sge import commands, output
from pilotage.outside.batch.sge.adapter import SgeBatch
from pilotage.outside.batch.sge.cell import DEFAULT_PORT, Cell
from pilotage.outside.batch.submission import NativeState, SubmissionFailed, SubmissionRefusal

LISTING = """\
<?xml version='1.0'?>
<job_info  xmlns:xsd="http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/qstat/qstat.xsd">
  <queue_info>
    <job_list state="running">
      <JB_job_number>7</JB_job_number>
      <JAT_prio>0.50000</JAT_prio>
      <JB_name>pilotage-abcdef0123456789</JB_name>
      <JB_owner>root</JB_owner>
      <state>r</state>
      <JAT_start_time>2026-11-22T16:50:10</JAT_start_time>
      <queue_name>all.q@vm</queue_name>
      <slots>1</slots>
      <tasks>2</tasks>
    </job_list>
  </queue_info>
  <job_info>
    <job_list state="pending">
      <JB_job_number>7</JB_job_number>
      <JAT_prio>0.00000</JAT_prio>
      <JB_name>pilotage-abcdef0123456789</JB_name>
      <JB_owner>root</JB_owner>
      <state>hqw</state>
      <JB_submission_time>2026-11-22T16:48:36</JB_submission_time>
      <queue_name></queue_name>
      <slots>1</slots>
      <tasks>3-7:2,9</tasks>
    </job_list>
    <job_list state="pending">
      <JB_job_number>18</JB_job_number>
      <JAT_prio>0.50000</JAT_prio>
      <JB_name>x%lt;&amp;&gt;&quot;y</JB_name>
      <JB_owner>root</JB_owner>
      <state>Eqw</state>
      <JB_submission_time>2026-11-22T16:57:46</JB_submission_time>
      <queue_name></queue_name>
      <slots>1</slots>
    </job_list>
  </job_info>
</job_info>
"""

SHOWN = """\
<?xml version='1.0'?>
<detailed_job_info >
  <djob_info>
    <element>
      <JB_job_number>18</JB_job_number>
      <JB_ja_tasks>
        <ulong_sublist>
          <JAT_task_number>1</JAT_task_number>
          <JAT_message_list>
            <ulong_sublist>
              <QIM_type>1</QIM_type>
              <QIM_message>11/22/2026 16:57:46 [0:6087]: error: can&apos;t chdir to /nosuch</QIM_message>
            </ulong_sublist>
          </JAT_message_list>
        </ulong_sublist>
      </JB_ja_tasks>
    </element>
    <element>
      <JB_job_number>19</JB_job_number>
      <JB_context>
        <context_list>
          <VA_variable>owner</VA_variable>
          <VA_value>ada</VA_value>
        </context_list>
        <context_list>
          <VA_variable>x</VA_variable>
          <VA_value>%2C%20</VA_value>
        </context_list>
        <context_list>
          <VA_variable>e</VA_variable>
        </context_list>
      </JB_context>
    </element>
  </djob_info>
  <messages>
    <element>
      <SME_message_list>
        <element>
          <MES_job_number_list>
            <element>
              <ULNG_value>19</ULNG_value>
            </element>
          </MES_job_number_list>
          <MES_message_number>0</MES_message_number>
          <MES_message>(-l mem_free=900G) cannot run at host &quot;vm&quot;</MES_message>
        </element>
        <element>
          <MES_job_number_list>
            <element>
              <ULNG_value>18</ULNG_value>
            </element>
          </MES_job_number_list>
          <MES_message_number>32</MES_message_number>
          <MES_message>Job is in error state</MES_message>
        </element>
      </SME_message_list>
      <SME_global_message_list>
        <element>
          <MES_message_number>7</MES_message_number>
          <MES_message>queue instance &quot;old.q@vm&quot; dropped because it is disabled</MES_message>
        </element>
      </SME_global_message_list>
    </element>
  </messages>
</detailed_job_info>
"""

ENDED = """\
==============================================================
qname        all.q               
hostname     vm                  
owner        root                
jobname      pilotage-abcdef0123456789
jobnumber    1                   
taskid       2                   
failed       100 : assumedly after job
exit_status  137                  (Killed)
==============================================================
qname        all.q               
hostname     vm                  
jobname      other
jobnumber    3                   
taskid       undefined           
failed       0    
exit_status  69                  
==============================================================
qname        all.q               
hostname     vm                  
jobname      pilotage-0
jobnumber    4                   
taskid       1                   
failed       0    
exit_status  0                   
"""


def test_the_tasks_of_a_listing() -> None:
    tasks = list(output.read_listing(LISTING))
    assert [(task.index, task.batch_id, task.state) for task in tasks[:5]] == [
        (1, "7.2", NativeState.RUNNING),
        (2, "7.3", NativeState.HELD),
        (4, "7.5", NativeState.HELD),
        (6, "7.7", NativeState.HELD),
        (8, "7.9", NativeState.HELD),
    ]
    assert (tasks[0].stamp, tasks[0].node, tasks[0].array) == ("pilotage-abcdef0123456789", "vm", "7")
    assert (tasks[5].index, tasks[5].batch_id, tasks[5].native) == (None, "18", "Eqw")


@pytest.mark.parametrize("length", range(1, len(LISTING) - 1, 97))
def test_a_listing_that_is_cut_off_is_unreadable(length: int) -> None:
    with pytest.raises(UnreadableOutput):
        list(output.read_listing(LISTING[:length]))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "error: commlib error: got read error (closing connection)",
        LISTING.replace("<tasks>2<", "<tasks>two<"),
        LISTING.replace("<tasks>2<", "<tasks>1-999999999<"),
        LISTING.replace("<JB_job_number>7<", "<JB_job_number><", 1),
        LISTING.replace("<state>r<", "<state><"),
        "<!DOCTYPE a [<!ENTITY b 'bbbbbbbbbb'><!ENTITY c '&b;&b;&b;'>]><job_info>&c;</job_info>",
        '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><job_info>&b;</job_info>',
    ],
)
def test_texts_that_are_no_listing(text: str) -> None:
    with pytest.raises(UnreadableOutput):
        list(output.read_listing(text))


def test_a_foreign_name_with_control_characters_hides_no_pilot() -> None:
    """Grid Engine prints them as they are, which is no XML."""
    tasks = list(output.read_listing(LISTING.replace("x%lt;", "x\x01\x1b")))
    assert len(tasks) == 6
    assert tasks[5].stamp == 'x\ufffd\ufffd&>"y'
    [*_, last] = output.read_listing(LISTING.replace("x%lt;", "x\ud800\udfff"))
    assert last.stamp == 'x\ufffd\ufffd&>"y'


@pytest.mark.parametrize(
    ("letters", "state"),
    [
        ("qw", NativeState.WAITING),
        ("hqw", NativeState.HELD),
        ("Eqw", NativeState.WAITING),
        ("Ehqw", NativeState.HELD),
        ("r", NativeState.RUNNING),
        ("t", NativeState.RUNNING),
        ("hr", NativeState.RUNNING),
        ("dr", NativeState.RUNNING),
        ("dt", NativeState.RUNNING),
        ("Rr", NativeState.RUNNING),
        ("Rq", NativeState.WAITING),
        ("s", NativeState.RUNNING),
        ("S", NativeState.RUNNING),
        ("T", NativeState.RUNNING),
        ("dqw", NativeState.WAITING),
        ("z", NativeState.ENDED),
        ("", NativeState.UNKNOWN),
        ("xyz", NativeState.UNKNOWN),
    ],
)
def test_the_letters_of_a_state(letters: str, state: NativeState) -> None:
    assert output.read_state(letters) is state


def test_reasons_have_no_numbers_of_jobs_or_times() -> None:
    dropped = 'queue instance "old.q@vm" dropped because it is disabled'
    assert output.read_reasons(SHOWN) == {
        "18": f"error: can't chdir to /nosuch; Job is in error state; {dropped}",
        "19": f'(-l mem_free=900G) cannot run at host "vm"; {dropped}',
    }
    unknown = "<?xml version='1.0'?>\n<unknown_jobs >\n    <ST_name>99999</ST_name>\n</unknown_jobs>\n"
    assert output.read_reasons(unknown) == {}


def test_the_reason_of_a_job_that_was_started_again() -> None:
    """Grid Engine 8.1.9 prints such a message with a tag that is no XML."""
    text = (
        "<?xml version='1.0'?>\n<detailed_job_info >\n<djob_info><element><JB_job_number>13</JB_job_number></element>"
        "</djob_info>\n<messages><element><SME_message_list><element><MES_job_number_list>\n<job ids>\n"
        "<ULNG_value>13</ULNG_value>\n</job ids>\n</MES_job_number_list><MES_message_number>44</MES_message_number>"
        "<MES_message>cannot run on host &quot;vm&quot; until clean up of a previous run has finished</MES_message>"
        "</element></SME_message_list></element></messages></detailed_job_info>"
    )
    assert output.read_reasons(text) == {
        "13": 'cannot run on host "vm" until clean up of a previous run has finished'
    }
    assert output.read_context(text) == {"13": {}}


@pytest.mark.parametrize("answer", [CommandResult(0, "<a"), CommandResult(1), CommandResult(None)])
def test_a_listing_is_complete_without_the_reasons(tmp_path: Path, answer: CommandResult) -> None:
    (tmp_path / "default" / "common").mkdir(parents=True)
    (tmp_path / "default" / "common" / "act_qmaster").write_text("vm\n")

    class WithoutReasons(Recorded):
        def run(self, command: object, *, text: str = "", timeout: float = 60.0) -> CommandResult:
            assert isinstance(command, list)
            return answer if "-j" in command else super().run(command, text=text, timeout=timeout)

    answers = {"qping": CommandResult(0, "start time: x (17)\n"), "qstat": CommandResult(0, LISTING)}
    batch = SgeBatch(WithoutReasons(answers), "root", SgeOptions(), Cell.of({"SGE_ROOT": str(tmp_path)}))
    listing = batch.list_pilots()
    assert listing.complete
    assert {task.reason for task in listing.tasks} == {"", "held"}


def test_the_context_of_jobs() -> None:
    assert output.read_context(SHOWN) == {"18": {}, "19": {"owner": "ada", "x": "%2C%20", "e": ""}}
    with pytest.raises(UnreadableOutput):
        output.read_context("<a/>")


def test_the_ends_in_the_accounting() -> None:
    ended = [(task.stamp, task.index, task.native, task.reason) for task in output.read_accounted(ENDED)]
    assert ended == [
        ("pilotage-abcdef0123456789", 1, "failed 100", "assumedly after job, signal 9"),
        ("other", None, "ended", "exit code 69"),
        ("pilotage-0", 0, "ended", ""),
    ]
    assert {task.state for task in output.read_accounted(ENDED)} == {NativeState.ENDED}


@pytest.mark.parametrize(
    ("status", "errors", "refusal", "reason"),
    [
        (None, "", SubmissionRefusal.IN_DOUBT, "qsub did not answer in time"),
        (-9, "", SubmissionRefusal.IN_DOUBT, "qsub was killed by signal 9"),
        (1, "", SubmissionRefusal.IN_DOUBT, "said nothing"),
        (
            1,
            "error: commlib error: got select error (Connection refused)\nUnable to run job: unable to contact qmaster"
            ' using port 6444 on host "vm".\nExiting.\n',
            SubmissionRefusal.IN_DOUBT,
            "Connection refused",
        ),
        (
            1,
            "Unable to run job: Error reading answer list from qmaster\nExiting.\n",
            SubmissionRefusal.IN_DOUBT,
            "answer list",
        ),
        (
            25,
            "Unable to run job: job rejected: only 2 jobs are allowed per user (current job count: 2)\nExiting.\n",
            SubmissionRefusal.FULL,
            "only 2 jobs",
        ),
        (
            25,
            "Unable to run job: job rejected: only 2 jobs are allowed per cluster\n",
            SubmissionRefusal.FULL,
            "per cluster",
        ),
        (
            25,
            "Unable to run job: job rejected: you tried to submit a job with more than 50 tasks\n",
            SubmissionRefusal.FULL,
            "more than 50",
        ),
        (
            1,
            'Unable to run job: Job was rejected because job requests unknown queue "nosuch"\nExiting.\n',
            SubmissionRefusal.REFUSED,
            'Job was rejected because job requests unknown queue "nosuch"',
        ),
        (
            2,
            "qsub: argument to -N option must not contain / \n",
            SubmissionRefusal.REFUSED,
            "must not contain /",
        ),
        (127, "qsub: No such file or directory", SubmissionRefusal.REFUSED, "No such file"),
    ],
)
def test_failed_submissions(status: int | None, errors: str, refusal: SubmissionRefusal, reason: str) -> None:
    known, text = output.classify_failure(status, errors)
    assert known is refusal
    assert reason in text
    assert "Exiting" not in text or refusal is SubmissionRefusal.IN_DOUBT


@pytest.mark.parametrize("text", ["11.1-2:1\n", "11\n", "warning: a word of the site\n11.1-2:1\n"])
def test_the_id_of_a_submission(text: str) -> None:
    assert output.read_submitted(text) == "11"


@pytest.mark.parametrize("text", ["", "Your job 11", "11.1", "1 1"])
def test_an_answer_without_an_id(text: str) -> None:
    with pytest.raises(UnreadableOutput):
        output.read_submitted(text)


def test_jobs_that_are_gone_are_no_failure() -> None:
    assert output.concerns_nothing('denied: job "999" does not exist\n')
    assert output.concerns_nothing("The job pilotage-1 of user(s) root does not exist\n")
    assert output.concerns_nothing(
        "job 1 is already in deletion\nroot has registered the job 2 for deletion\n"
    )
    assert not output.concerns_nothing("")
    assert not output.concerns_nothing(
        'denied: job "9" does not exist\nerror: commlib error: got read error\n'
    )


def test_the_start_of_the_master() -> None:
    shown = "11/22/2026 16:50:06:\nSIRM version:  0.1\nstart time:               11/22/2026 16:50:05 (1795366205)\n"
    assert output.read_master_start(shown) == "1795366205"
    with pytest.raises(UnreadableOutput):
        output.read_master_start("endpoint vm/qmaster/1 at port 6444 is not up\n")


def test_several_cores_need_a_parallel_environment() -> None:
    with pytest.raises(InvalidInput, match="parallel environment"):
        commands.check(Shape(2), SgeOptions())
    batch = SgeBatch(Recorded({}), "root", SgeOptions(), Cell.of({}))
    assert "set `pe`" in batch.check(Shape(2))
    with pytest.raises(SubmissionFailed) as failed:
        batch.submit(BatchSubmission("pilotage-1", 1, Shape(2), ""))
    assert failed.value.refusal is SubmissionRefusal.REFUSED


class Recorded:
    """A runner with recorded answers, by command. It keeps the calls."""

    is_remote = False

    def __init__(self, answers: dict[str, CommandResult]) -> None:
        self.calls: list[tuple[list[str], str]] = []
        self._answers = answers

    def run(self, command: object, *, text: str = "", timeout: float = 60.0) -> CommandResult:
        assert isinstance(command, list)
        self.calls.append((command, text))
        return self._answers.get(command[0], CommandResult(None))

    def close(self) -> None:
        pass


def test_the_script_never_stands_in_an_argument_and_opens_its_log() -> None:
    runner = Recorded({"qsub": CommandResult(0, "3.1-2:1\n")})
    batch = SgeBatch(runner, "root", SgeOptions(log_folder="/data/it's"), Cell.of({}))
    script = "#!/bin/sh\n#$ -N stolen\necho secret\n"
    receipt = batch.submit(BatchSubmission("pilotage-1", 2, Shape(1), script, flags=("-l", "si00=501")))
    assert receipt.batch_ids == ("3.1", "3.2")
    [(command, text)] = runner.calls
    assert "secret" not in " ".join(command)
    assert command[-2:] == ["-l", "si00=501"]
    assert command[command.index("-C") + 1] == "", "no line of the script is an option"
    first, *lines = text.splitlines()
    assert first == "#!/bin/sh"
    assert lines[0] == "PILOTAGE_INDEX=$((SGE_TASK_ID - 1)); export PILOTAGE_INDEX"
    assert "'/data/it'\"'\"'s'/\"pilotage-1-$PILOTAGE_INDEX.log\"" in text
    assert lines[-2:] == ["#$ -N stolen", "echo secret"]


@pytest.mark.parametrize(
    "stamp", ["*", "pilotage-*", "1", "all", "-f", "a b", "", "pilotage-?", "a/b", "a,b"]
)
def test_a_pattern_is_never_a_name(stamp: str) -> None:
    """`qdel '*'` would delete every job of the account, and `qrls all` release it."""
    runner = Recorded({})
    batch = SgeBatch(runner, "root", SgeOptions(), Cell.of({}))
    batch.cancel([stamp])
    batch.release([stamp])
    with contextlib.suppress(Unreachable):
        batch.cancel([stamp], waiting_only=True)
    assert runner.calls == []
    with pytest.raises(SubmissionFailed):
        batch.submit(BatchSubmission(stamp, 1, Shape(1), ""))


def test_a_master_that_cannot_be_asked() -> None:
    batch = SgeBatch(Recorded({}), "root", SgeOptions(), Cell.of({"SGE_ROOT": "/nosuch"}))
    failure = batch.list_pilots().failure
    assert (
        "/nosuch/default/common/act_qmaster cannot be read: No such file or directory (set SGE_ROOT"
        in failure
    )
    with pytest.raises(Unreachable, match="did not answer"):
        batch.describe()
    bare = SgeBatch(Recorded({"qstat": CommandResult(127)}), "root", SgeOptions(), Cell.of({}))
    with pytest.raises(Unreachable, match=r"qstat is not installed here \(install Grid Engine's client"):
        bare.describe()


def test_the_cell_of_an_environment() -> None:
    cell = Cell.of({"SGE_ROOT": "/opt/sge", "SGE_CELL": "physics", "SGE_QMASTER_PORT": "7000"})
    assert (str(cell.folder), cell.port) == ("/opt/sge/physics", 7000)
    default = Cell.of({"SGE_QMASTER_PORT": "nonsense"})
    assert str(default.folder) == "/var/lib/gridengine/default"
    assert default.port in (DEFAULT_PORT, 6444)


@pytest.mark.parametrize(
    "options",
    [
        SgeOptions(queue="-q x"),
        SgeOptions(queue="all.q\n"),
        SgeOptions(project="a b"),
        SgeOptions(root="opt"),
        SgeOptions(log_folder="logs"),
        SgeOptions(pe="smp 4"),
        SgeOptions(memory_complex="mem_free=1,x"),
        SgeOptions(resources='a="b"'),
        SgeOptions(resources="-soft"),
        SgeOptions(resources="=1"),
        SgeOptions(resources="gpu="),
        SgeOptions(resources="gpu=1\n"),
        SgeOptions(resources="gpu=1,si00=400, gpu=2"),
        SgeOptions(resources="h_rt=60"),
        SgeOptions(resources="slots=2"),
        SgeOptions(resources="x=" + "1" * 2000),
    ],
)
def test_options_that_no_grid_engine_could_use(options: SgeOptions) -> None:
    [(key, reason)] = options.mistakes()
    assert key in reason


@pytest.mark.parametrize(
    ("resources", "names"),
    [
        ("arch=lx-amd64,gpu=1", {"arch", "gpu"}),
        ("arch=!(a|b) exclusive", {"arch", "exclusive"}),
        ("hostname=n[1-4]*,,x=a=b", {"hostname", "x"}),
    ],
)
def test_requests_that_qsub_takes_are_accepted(resources: str, names: set[str]) -> None:
    options = SgeOptions(resources=resources, memory_complex="")
    assert list(options.mistakes()) == []
    assert options.own_requests == {*names, "h_rt", ""}
