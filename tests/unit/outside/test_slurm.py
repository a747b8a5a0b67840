"""Slurm's commands and outputs. The texts were printed by Slurm 22.05."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.policy.batch_systems.slurm import SlurmOptions
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.command_client import UnreadableOutput
from pilotage.outside.batch.properties import read_properties, write_properties
from pilotage.outside.batch.slurm import commands, output
from pilotage.outside.batch.submission import ListedTask, NativeState, SubmissionRefusal

LISTING = """\
=|19|1|COMPLETING|n2|pilot-55|None
=|18|N/A|FAILED|n1|fails|NonZeroExitCode
=|17|N/A|PENDING||a|b c|PartitionTimeLimit
=|23|N/A|PENDING||x
y|JobHeldUser
=|16|0|PENDING||pilot-91bc|JobHeldUser
=|16|1|PENDING||pilot-91bc|JobHeldAdmin
=|15|0|RUNNING|n1|pilot-7f3a|None
=|19|0|PENDING||pilot-55|Resources
=|15|1|SUSPENDED|n1|pilot-7f3a|None
=|16|N/A|CANCELLED||pilot-92|JobHeldAdmin
=|24|0|SOMETHING_NEW|n1|pilot-93|None
"""

PARTITIONS = """\
short|up|30:00|1|8|16000|gen,bigmem|(null)|completing
short|up|30:00|2|16+|32000+|gen|gpu:a100:4|idle
long|down|2-00:00:00|1|8|16000|(null)|(null)|idle
endless|up|infinite|1|4|8000|(null)|(null)|idle
"""


def test_a_listing_is_read() -> None:
    listed = list(output.read_listing(LISTING))
    assert [(task.stamp, task.index, task.batch_id, task.state) for task in listed] == [
        ("pilot-55", 1, "19_1", NativeState.RUNNING),
        ("fails", None, "18", NativeState.ENDED),
        ("a", None, "17", NativeState.WAITING),
        ("x", None, "23", NativeState.WAITING),
        ("pilot-91bc", 0, "16_0", NativeState.HELD),
        ("pilot-91bc", 1, "16_1", NativeState.HELD),
        ("pilot-7f3a", 0, "15_0", NativeState.RUNNING),
        ("pilot-55", 0, "19_0", NativeState.WAITING),
        ("pilot-7f3a", 1, "15_1", NativeState.RUNNING),
        ("pilot-92", None, "16", NativeState.ENDED),
        ("pilot-93", 0, "24_0", NativeState.UNKNOWN),
    ]
    assert [task.reason for task in listed][1:3] == ["NonZeroExitCode", "b c|PartitionTimeLimit"]
    assert listed[0] == ListedTask("pilot-55", 1, "19_1", NativeState.RUNNING, "COMPLETING", "", "n2", "19")


@pytest.mark.parametrize(
    "text",
    [
        LISTING[:-1],
        LISTING[:-20],
        "=|slurm_load_jobs error|a|b|c|d\n",
        "=|15|0|RUNNING\n",
        "an error\n" + LISTING,
    ],
)
def test_a_damaged_listing_is_no_listing(text: str) -> None:
    with pytest.raises(UnreadableOutput):
        list(output.read_listing(text))


@given(st.text(alphabet="=|\n0123456789_ abN/A", max_size=200))
def test_a_listing_is_read_or_refused(text: str) -> None:
    try:
        for task in output.read_listing(text):
            assert task.batch_id
    except UnreadableOutput:
        pass


SOUP = st.one_of(
    st.binary(max_size=300).map(lambda data: data.decode(errors="replace")),
    st.text(max_size=200),
    st.text(alphabet="=|\n0123456789_ ,:-+\u0663\u00b2()abN/AEDFINPRUG", max_size=200),
    st.sampled_from(["\u00b2", "7\u00b2", "\u0663"]),
    st.integers(5, 9000).map(lambda length: "9" * length + "\n"),
)
"""Texts that a command may print: any bytes, any characters, and numbers of any script and length."""
ENDED_WORDS = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
               "REVOKED", "TIMEOUT")  # fmt: skip
ACCOUNTING = """\
1_[0-1]|PENDING|0:0|QOSMaxWallDurationPerJobLimit|None assigned|60|pilotage-a
2|TIMEOUT|0:0|None|n1|60|pilotage-b
5|FAILED|0:9|None|n1|60|pilotage-c
4_0|NODE_FAIL|0:0|None|n2|60|pilotage-d
6_0|FAILED|3:0|None|n2|60|pilotage-e
6_1|RUNNING|0:0|None|n2|60|pilotage-e
7|CANCELLED by 0|0:0|AssocMaxJobsLimit|None assigned|60|pilotage-f
8_1|CANCELLED by 1000|0:15|AssocMaxJobsLimit|n2|60|pilotage-f
9|COMPLETED|0:0|None|n2|60|a|b
10|OUT_OF_MEMORY|0:125|None|n2|60|pilotage-g
"""
"""Of `sacct` with `commands.ACCOUNTED_FORMAT`."""


def test_the_accounting_is_read() -> None:
    ended = list(output.read_accounted(ACCOUNTING, {"0": "root", "1000": "ada"}.__getitem__))
    assert [(task.stamp, task.index, task.batch_id, task.native, task.reason) for task in ended] == [
        ("pilotage-b", None, "2", "TIMEOUT", ""),
        ("pilotage-c", None, "5", "FAILED", "signal 9"),
        ("pilotage-d", 0, "4_0", "NODE_FAIL", ""),
        ("pilotage-e", 0, "6_0", "FAILED", "exit code 3"),
        ("pilotage-e", 1, "6_1", "RUNNING", ""),
        ("pilotage-f", None, "7", "CANCELLED", "by root, while it waited: AssocMaxJobsLimit"),
        ("pilotage-f", 1, "8_1", "CANCELLED", "by ada"),
        ("a|b", None, "9", "COMPLETED", ""),
        ("pilotage-g", None, "10", "OUT_OF_MEMORY", ""),
    ]
    assert [task.batch_id for task in ended if task.state is not NativeState.ENDED] == ["6_1"]
    assert [task.array for task in ended][:3] == ["2", "5", "4"]


def test_a_job_whose_end_never_reached_the_accounting_does_not_run() -> None:
    line = "6_1|RUNNING|0:0|None|n2|{}|pilotage-e\n"
    read = [
        list(output.read_accounted(line.format(seconds), str, 3600.0)) for seconds in ("4200", "4201", "")
    ]
    assert [len(tasks) for tasks in read] == [1, 0, 0]


def test_accounting_without_its_end_is_none() -> None:
    with pytest.raises(UnreadableOutput):
        list(output.read_accounted(ACCOUNTING[:-3], str))


VIOLATED = "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n"  # noqa: E501


@pytest.mark.parametrize(
    ("limit", "refusal"),
    [
        ("AssocMaxSubmitJobLimit", SubmissionRefusal.FULL),
        ("AssocGrpSubmitJobsLimit", SubmissionRefusal.FULL),
        ("QOSMaxSubmitJobPerUserLimit", SubmissionRefusal.FULL),
        ("QOSGrpSubmitJobsLimit", SubmissionRefusal.FULL),
        ("QOSMaxMemoryPerUser", SubmissionRefusal.REFUSED),
        ("QOSMaxWallDurationPerJobLimit", SubmissionRefusal.REFUSED),
        ("", SubmissionRefusal.FULL),
    ],
)
def test_limits_on_submitted_jobs_mean_full_and_others_refused(
    limit: str, refusal: SubmissionRefusal
) -> None:
    errors = (f"sbatch: error: {limit}\n" if limit else "") + VIOLATED
    assert output.classify_failure(1, errors)[0] is refusal
    assert limit in output.read_refusal(errors)


READERS = (
    lambda text: list(output.read_listing(text)),
    lambda text: list(output.read_accounted(text, str)),
    lambda text: list(output.read_accounted(f"7_1|{text}|0:1|None|n1|60|pilotage-1\n", str)),
    output.read_listed_properties,
    output.read_submitted,
    output.read_controller_start,
    output.read_partitions,
    output.read_span,
    lambda text: output.read_setting(text, "X"),
    output.read_refusal,
    output.read_refused_release,
    output.is_refused_release,
    lambda text: output.classify_failure(1, text),
)


@pytest.mark.parametrize("read", READERS)
@given(text=SOUP)
def test_no_output_raises_anything_but_the_readers_own_error(
    read: Callable[[str], object], text: str
) -> None:
    for written in (
        text,
        f"{commands.LINE_START}{text}",
        f"=|7|{text}|RUNNING|n|s|r\n",
        f"short|up|{text}|1|8|9|a|b|c\n",
    ):
        with contextlib.suppress(UnreadableOutput):
            read(written)


@given(text=SOUP)
def test_no_soup_ends_a_pilot(text: str) -> None:
    """Only the whole word of an ended state ends a pilot. Other words, and parts of these, are unknown."""
    for written in (text, f"=|7|0|{text.replace('|', '')}|n|pilotage-1|r\n"):
        with contextlib.suppress(UnreadableOutput):
            for task in output.read_listing(written):
                assert task.state is not NativeState.ENDED or task.native in ENDED_WORDS


@given(st.data())
def test_a_damaged_copy_of_a_listing_ends_no_pilot_that_the_listing_has(data: st.DataObject) -> None:
    alive = {
        (task.stamp, task.index)
        for task in output.read_listing(LISTING)
        if task.state is not NativeState.ENDED
    }
    place = data.draw(st.integers(0, len(LISTING)))
    removed = data.draw(st.integers(0, 3))
    inserted = data.draw(st.binary(max_size=4)).decode(errors="replace")
    damaged = LISTING[:place] + inserted + LISTING[place + removed :]
    with contextlib.suppress(UnreadableOutput):
        for task in output.read_listing(damaged):
            assert task.state is not NativeState.ENDED or (task.stamp, task.index) not in alive


@given(st.dictionaries(st.text(min_size=1, max_size=10), st.text(max_size=20), max_size=5))
def test_properties_are_one_word_and_read_back(properties: dict[str, str]) -> None:
    word = write_properties(properties)
    assert word.isascii()
    assert not set(word) & set(" |\n\t'\"\\")
    assert read_properties(word) == properties


@given(text=SOUP)
def test_properties_of_others_are_read_or_left_out(text: str) -> None:
    assert isinstance(read_properties(text), dict)


@pytest.mark.parametrize(
    ("errors", "refused"),
    [
        ("26_0: Requested partition configuration not available now\nslurm_suspend error: No error\n", True),
        ("26_0: Requested node configuration is not available\n", True),
        ("Invalid job id specified for job pilotage-1\n", False),
        ("slurm_suspend error: Unable to contact slurm controller (connect failure)\n", False),
        ("26_0: Job/step already completing or completed\n", False),
        ("", False),
    ],
)
def test_which_releases_are_refused(errors: str, refused: bool) -> None:
    """Recorded from Slurm 22.05."""
    assert output.is_refused_release(errors) is refused
    if refused:
        assert output.read_refused_release(errors).startswith("Requested")


@pytest.mark.parametrize(
    ("status", "errors", "refusal"),
    [
        (1, "sbatch: error: invalid partition specified: nosuch\n", SubmissionRefusal.REFUSED),
        (
            1,
            "sbatch: error: Batch job submission failed: Invalid feature specification\n",
            SubmissionRefusal.REFUSED,
        ),
        (
            1,
            "sbatch: error: Batch job submission failed: Invalid job array specification",
            SubmissionRefusal.REFUSED,
        ),
        (127, "sbatch: No such file or directory", SubmissionRefusal.REFUSED),
        (
            1,
            "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates"
            " accounting/QOS policy (job submit limit, user's size and/or time limits)\n",
            SubmissionRefusal.FULL,
        ),
        (1, "sbatch: error: QOSMaxSubmitJobPerUserLimit\n", SubmissionRefusal.FULL),
        (
            1,
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n",
            SubmissionRefusal.IN_DOUBT,
        ),
        (
            1,
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n",
            SubmissionRefusal.IN_DOUBT,
        ),
        (None, "", SubmissionRefusal.IN_DOUBT),
        (-9, "sbatch: error: invalid partition specified: nosuch\n", SubmissionRefusal.IN_DOUBT),
        (1, "a text that nobody has seen before", SubmissionRefusal.IN_DOUBT),
        (0, "", SubmissionRefusal.IN_DOUBT),
    ],
)
def test_only_final_answers_of_slurm_leave_no_doubt(
    status: int | None, errors: str, refusal: SubmissionRefusal
) -> None:
    found, text = output.classify_failure(status, errors)
    assert found is refusal
    assert text
    assert "error:" not in text


def test_the_id_of_a_submission() -> None:
    assert output.read_submitted("123\n") == "123"
    assert output.read_submitted("123;cluster\n") == "123"
    for text in ("", "Submitted batch job 5\n", "5 6\n", "x\n"):
        with pytest.raises(UnreadableOutput):
            output.read_submitted(text)


def test_partitions() -> None:
    short, long, endless = output.read_partitions(PARTITIONS)
    assert (short.name, short.up, short.wall) == ("short", True, 1800.0)
    assert short.kinds == ((1, 8, 16000), (2, 16, 32000))
    assert short.features == {"gen", "bigmem"}
    assert short.gres == {"gpu:a100:4"}
    assert (long.up, long.wall, endless.wall) == (False, 172800.0, None)
    with pytest.raises(UnreadableOutput):
        output.read_partitions("slurm_load_partitions: Unable to contact slurm controller\n")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("30:15", 1815),
        ("1:00:05", 3605),
        ("2-00:00:00", 172800),
        ("1-12", 129600),
        ("1-0:30", 88200 - 0),
    ],
)
def test_spans(text: str, seconds: float) -> None:
    assert output.read_span(text) == seconds


def test_the_controllers_start() -> None:
    text = (
        "Configuration data as of 2026-11-22T07:05:45\nBOOT_TIME               = 2026-11-22T07:05:22\nX = 1\n"
    )
    assert output.read_controller_start(text) == "2026-11-22T07:05:22"
    with pytest.raises(UnreadableOutput):
        output.read_controller_start("")
    assert output.read_setting(text, "X") == "1"
    assert output.read_setting(text, "Y") == ""


def test_arguments_of_a_submission() -> None:
    shape = Shape(processors=4, memory=8000, wall=90.0)
    command = commands.submit(
        BatchSubmission("pilot-1", 5, shape, ""), SlurmOptions(partition="long", gres="gpu:1")
    )
    assert command[0] == "sbatch"
    assert {"--hold", "--no-requeue", "--job-name=pilot-1", "--array=0-4", "--time=2"} <= set(command)
    assert {"--cpus-per-task=4", "--mem=8000M", "--partition=long", "--gres=gpu:1"} <= set(command)
    assert not any(word.startswith(("--account", "--qos", "--constraint")) for word in command)


@given(st.text(min_size=1, max_size=30))
def test_a_value_of_the_policy_stays_one_argument(value: str) -> None:
    shape = Shape(processors=1, memory=0, wall=60.0)
    plain = commands.submit(BatchSubmission("s", 1, shape, ""), SlurmOptions())
    command = commands.submit(BatchSubmission("s", 1, shape, ""), SlurmOptions(account=value))
    assert [word for word in command if word not in plain] == [f"--account={value}"]
