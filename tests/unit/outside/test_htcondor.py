"""HTCondor's commands and readers of what they print, without HTCondor."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import msgspec
import pytest

from pilotage.core.errors import Unreachable
from pilotage.core.pilots.waits import WaitClass
from pilotage.core.policy import parse
from pilotage.core.policy.batch_systems.htcondor import HtcondorOptions
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.command_client import UnreadableOutput
from pilotage.outside.batch.htcondor import _own_variables, commands, machines, output
from pilotage.outside.batch.htcondor.adapter import HtcondorBatch
from pilotage.outside.batch.htcondor.hold_codes import CODES, classify_hold, describe_hold
from pilotage.outside.batch.runner import CommandResult
from pilotage.outside.batch.submission import NativeState, SubmissionFailed, SubmissionRefusal

STAMP = "pilotage-0123456789abcdef"
PLAIN = HtcondorOptions()


def ads(*found: dict[str, object]) -> str:
    """As HTCondor prints them."""
    return "[\n" + "\n,\n".join(json.dumps(ad, indent=2) for ad in found) + "\n]\n" if found else ""


def job(process: int = 0, status: int = 2, **more: object) -> dict[str, object]:
    own = {"PilotageStamp": STAMP, "PilotageIndex": process}
    return {"ClusterId": 7, "ProcId": process, "JobStatus": status, **own, **more}


def described(options: HtcondorOptions = PLAIN, **more: object) -> dict[str, str]:
    """The lines of a submit description."""
    submission = BatchSubmission(STAMP, 3, Shape(2, 100, 120.0), "", **more)  # type: ignore[arg-type]
    text = commands.describe_submission(submission, options, commands.script_in_file("/s/x"))
    *lines, queue = text.splitlines()
    assert queue == "queue 3"
    return dict(line.split(" = ", 1) for line in lines)


def test_a_submission_is_held_and_has_its_identity() -> None:
    lines = described()
    assert (lines["hold"], lines["executable"], lines["request_cpus"]) == ("true", "/s/x", "2")
    assert (lines["My.PilotageStamp"], lines["My.PilotageIndex"]) == (f'"{STAMP}"', "$(Process)")
    assert lines["My.maxWallTime"] == "2"
    assert "NumJobStarts" in lines["requirements"]
    assert "120" not in lines["requirements"]
    assert f"> {120 + commands.LATE}" in lines["periodic_remove"]


def test_options_and_flags_become_lines() -> None:
    options = HtcondorOptions(
        accounting_group="physics.atlas",
        requirements="HasCvmfs",
        attributes='WantX = true; +Note = "a;b = c"; Y = x == 2',
    )
    lines = described(options, flags=("--requirements=(TARGET.A == 1)", "--request-gpus=2"))
    assert lines["accounting_group"] == "physics.atlas"
    assert (lines["My.WantX"], lines["My.Note"], lines["My.Y"]) == ("true", '"a;b = c"', "x == 2")
    assert lines["requirements"].startswith("(HasCvmfs) && ((TARGET.A == 1)) && (")
    assert lines["request_gpus"] == "2"
    assert not list(options.mistakes())


def test_a_fetching_script_stands_in_the_arguments_in_base64() -> None:
    lines = commands.script_in_arguments("#!/bin/sh\nexit '$(HOME)' \"\n")
    assert (lines["executable"], lines["transfer_executable"]) == ("/bin/sh", "false")
    assert "HOME" not in lines["arguments"]
    assert "$" not in lines["arguments"], "it would begin a macro"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schedd", "a b"),
        ("pool", "a;b"),
        ("owner", 'x"'),
        ("accounting_group", "a/b"),
        ("log_folder", "logs"),
        ("log_folder", "/a b"),
        ("script_folder", "/$(HOME)"),
        ("token_folder", "tokens"),
        ("requirements", "a\nqueue 1000"),
        ("requirements", "$ENV(HOME)"),
        ("requirements", "a\\"),
        ("attributes", "Want"),
        ("attributes", "a-b = 1"),
        ("attributes", "a == 1"),
    ],
)
def test_a_value_that_would_change_the_description_is_a_mistake(key: str, value: str) -> None:
    assert key in {wrong for wrong, _ in replaced(key, value).mistakes()}


def replaced(key: str, value: str) -> HtcondorOptions:
    return msgspec.structs.replace(PLAIN, **{key: value})


def test_tokens_are_variables_and_the_only_methods() -> None:
    assert _own_variables(PLAIN) == {}
    made = _own_variables(HtcondorOptions(token_folder="/t", scitoken="/s/token"))
    assert made["_CONDOR_SEC_CLIENT_AUTHENTICATION_METHODS"] == "SCITOKENS,IDTOKENS"
    assert (made["_CONDOR_SEC_TOKEN_DIRECTORY"], made["_CONDOR_SCITOKENS_FILE"]) == ("/t", "/s/token")


@pytest.mark.parametrize(
    ("options", "owner"),
    [
        (PLAIN, "server"),
        (HtcondorOptions(owner="pilots"), "pilots"),
        (HtcondorOptions(schedd="x"), ""),
        (HtcondorOptions(token_folder="/t"), ""),
        (HtcondorOptions(scitoken="/s/token"), ""),
        (HtcondorOptions(scitoken="/s/token", owner="pilots"), "pilots"),
    ],
)
def test_pilots_are_those_of_the_account_that_the_schedd_gives_them(
    options: HtcondorOptions, owner: str
) -> None:
    """A token may stand for another account than that of the server, whose pilots would then never be found."""
    asked = list[Sequence[str]]()

    class Recorded:
        is_remote = False

        def close(self) -> None:
            pass

        def run(self, command: Sequence[str], *, text: str = "", timeout: float = 60.0) -> CommandResult:
            asked.append(command)
            return CommandResult(0)

    HtcondorBatch(Recorded(), "server", options).properties([STAMP])
    [command] = asked
    constraint = command[command.index("-constraint") + 1]
    assert constraint.partition("Owner == ")[2] == (f'"{owner}"' if owner else "")


class ScheddOf:
    """A schedd that has the pilots of one account, and finds none of other accounts."""

    is_remote = False

    def __init__(self, owner: str, nothing: CommandResult) -> None:
        self.owner, self.nothing = owner, nothing
        self.removed = 0

    def close(self) -> None:
        pass

    def run(self, command: Sequence[str], *, text: str = "", timeout: float = 60.0) -> CommandResult:
        if command[0] == "sh":
            return CommandResult(0)
        constraint = command[command.index("-constraint") + 1]
        if not self.owner or ("Owner" in constraint and f'Owner == "{self.owner}"' not in constraint):
            return CommandResult(0) if command[0] == "condor_q" else self.nothing
        self.removed += command[0] == "condor_rm"
        return CommandResult(0, ads(job(Owner=self.owner)) if command[0] == "condor_q" else "All jobs")


FOUND_NOTHING = [
    CommandResult(0, errors="condor_release:0:There are no jobs in the queue\n"),
    CommandResult(1, errors="\nCouldn't find/release all jobs matching constraint (x)\n"),
]


@pytest.mark.parametrize("nothing", FOUND_NOTHING)
def test_pilots_of_another_account_than_the_configured_one_are_refused_and_cancelled(
    nothing: CommandResult,
) -> None:
    schedd = ScheddOf("pilots", nothing)
    batch = HtcondorBatch(schedd, "server", HtcondorOptions(owner="nobody-such"))
    with pytest.raises(SubmissionFailed) as failed:
        batch.release([STAMP])
    assert failed.value.refusal is SubmissionRefusal.REFUSED
    assert "to account pilots, not to nobody-such" in failed.value.reason
    batch.cancel([STAMP])
    assert schedd.removed == 1


@pytest.mark.parametrize("nothing", FOUND_NOTHING)
@pytest.mark.parametrize("owner", ["server", ""])
def test_a_release_that_finds_no_pilot_of_another_account_does_no_harm(
    owner: str, nothing: CommandResult
) -> None:
    """They were cancelled, or are released already."""
    HtcondorBatch(ScheddOf(owner, nothing), "server", PLAIN).release([STAMP])


def test_the_way_of_the_script_follows_from_the_schedd() -> None:
    assert not PLAIN.fetches_program
    assert HtcondorOptions(schedd="x").fetches_program
    assert not HtcondorOptions(schedd="x", scripts="file").fetches_program
    assert HtcondorOptions(scripts="fetch").fetches_program


@pytest.mark.parametrize(
    ("status", "more", "state"),
    [
        (1, {}, NativeState.WAITING),
        (2, {"RemoteHost": "slot1_1@node1"}, NativeState.RUNNING),
        (3, {"RemoteHost": "slot1_1@node1"}, NativeState.RUNNING),
        (3, {}, NativeState.ENDED),
        (4, {}, NativeState.ENDED),
        (5, {}, NativeState.HELD),
        (6, {}, NativeState.RUNNING),
        (7, {}, NativeState.RUNNING),
        (8, {}, NativeState.UNKNOWN),
        (0, {}, NativeState.UNKNOWN),
    ],
)
def test_each_state_has_a_meaning(status: int, more: dict[str, object], state: NativeState) -> None:
    [task] = output.read_listing(ads(job(4, status, **more)))
    assert (task.stamp, task.index, task.batch_id, task.state) == (STAMP, 4, "7.4", state)
    assert task.node == ("node1" if more else "")


@pytest.mark.parametrize(
    ("code", "subcode", "reason", "expected", "wait"),
    [
        (15, 0, "", "submitted on hold", WaitClass.USER),
        (1, 0, "by ada", "held with condor_hold: by ada", WaitClass.USER),
        (16, 0, "", "its files are on their way to the schedd", WaitClass.STAGING),
        (
            13,
            2,
            "Error from slot1",
            "its script could not be transferred to the machine (No such file or directory): Error from slot1",
            WaitClass.ERROR,
        ),
        (55, 3, "site rule", "held with code 55.3: site rule", WaitClass.UNKNOWN),
        (
            26,
            0,
            "too many",
            "a rule of the schedd holds it (SYSTEM_PERIODIC_HOLD): too many",
            WaitClass.POLICY,
        ),
    ],
)
def test_holds_are_told_in_plain_words(
    code: int, subcode: int, reason: str, expected: str, wait: WaitClass
) -> None:
    held = job(0, 5, HoldReasonCode=code, HoldReasonSubCode=subcode, HoldReason=reason)
    [task] = output.read_listing(ads(held))
    assert (task.reason, task.wait) == (expected, wait)


def test_every_code_of_the_manual_has_words() -> None:
    assert set(CODES) == set(range(49))
    assert all(classify_hold(code) is not WaitClass.UNKNOWN and describe_hold(code, 0, "") for code in CODES)


def test_an_evicted_pilot_is_told_as_one_that_never_starts_again() -> None:
    [task] = output.read_listing(ads(job(0, 1, NumJobStarts=1)))
    assert (task.reason, task.wait) == (output.CAME_BACK, WaitClass.ERROR)


def test_other_jobs_may_have_attributes_of_any_kind() -> None:
    strange = {"PilotageStamp": 3, "PilotageIndex": "x", "RemoteHost": [1], "HoldReasonCode": "/Expr(a)/"}
    [task] = output.read_listing(ads({**job(0, 5), **strange, "JobBatchName": "mine"}))
    assert (task.stamp, task.index, task.node) == ("mine", None, "")


WHOLE = ads(*(job(number) for number in range(5)))


@pytest.mark.parametrize("cut", range(1, len(WHOLE.rstrip()), 7))
def test_a_cut_listing_is_no_listing(cut: int) -> None:
    with pytest.raises(UnreadableOutput):
        list(output.read_listing(WHOLE[:cut]))


@pytest.mark.parametrize(
    "text", ["{}", '[{"ClusterId": "x"}]', "[1]", "Error: no schedd", "[\n{}\n]", '{"jobs": []}']
)
def test_another_answer_is_no_listing(text: str) -> None:
    with pytest.raises(UnreadableOutput):
        list(output.read_listing(text))


def test_nothing_is_a_listing_of_nothing() -> None:
    assert list(output.read_listing("")) == []
    assert list(output.read_listing("\n")) == []


@pytest.mark.parametrize("count", [1, 2, output.PIECE - 1, output.PIECE, output.PIECE + 1, 3 * output.PIECE])
def test_long_listings_are_read_in_pieces(count: int) -> None:
    tasks = list(output.read_listing(ads(*(job(number) for number in range(count)))))
    assert [task.index for task in tasks] == list(range(count))


def test_a_text_that_looks_like_the_edge_of_an_ad_changes_nothing() -> None:
    edge = job(0, 5, HoldReason="}\n,\n{", HoldReasonCode=1)
    tasks = list(output.read_listing(ads(edge, job(1))))
    assert [task.index for task in tasks] == [0, 1]


def test_fifty_thousand_pilots_are_listed_in_two_seconds() -> None:
    text = ads(*(job(number, 2, RemoteHost=f"slot1_{number}@node{number % 500}") for number in range(50_000)))
    begun = time.thread_time()
    assert sum(1 for _ in output.read_listing(text)) == 50_000
    assert time.thread_time() - begun < 2


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"JobStatus": 4, "ExitCode": 0}, ""),
        ({"JobStatus": 4, "ExitCode": 69, "ExitBySignal": False}, "exit code 69"),
        ({"JobStatus": 4, "ExitBySignal": True, "ExitSignal": 9}, "signal 9"),
        ({"JobStatus": 3, "RemoveReason": "via condor_rm (by user ada)"}, "via condor_rm (by user ada)"),
        (
            {"JobStatus": 3, "RemoveReason": "by rule", "HoldReason": "no file"},
            "by rule, while it was held: no file",
        ),
    ],
)
def test_the_history_tells_how_a_pilot_ended(more: dict[str, object], reason: str) -> None:
    [task] = output.read_accounted(ads({**job(), "LastRemoteHost": "slot1@node1", **more}))
    assert (task.state, task.reason, task.node) == (NativeState.ENDED, reason, "node1")


def test_the_ids_of_a_submission_are_those_of_all_its_pilots() -> None:
    assert output.read_submitted("12.0 - 12.2\n", 3) == ("12", ("12.0", "12.1", "12.2"))
    for text in ("", "12.0 - 12.1", "12.0 - 13.2", "12.1 - 12.2", "Submitting job(s)..."):
        with pytest.raises(UnreadableOutput):
            output.read_submitted(text, 3)


@pytest.mark.parametrize(
    ("status", "errors", "refusal"),
    [
        (None, "", SubmissionRefusal.IN_DOUBT),
        (-9, "", SubmissionRefusal.IN_DOUBT),
        (1, "", SubmissionRefusal.IN_DOUBT),
        (1, "ERROR: Failed to commit job submission into the queue.", SubmissionRefusal.IN_DOUBT),
        (1, "condor_submit: unknown host nosuch", SubmissionRefusal.REFUSED),
        (127, "condor_submit: No such file or directory", SubmissionRefusal.REFUSED),
        (1, "Number of submitted jobs would exceed MAX_JOBS_PER_OWNER", SubmissionRefusal.FULL),
    ],
)
def test_a_failed_submission_is_in_doubt_unless_it_is_certain(
    status: int | None, errors: str, refusal: SubmissionRefusal
) -> None:
    found, reason = output.classify_failure(status, errors)
    assert found is refusal
    assert reason


def test_totals_of_all_users_are_counted() -> None:
    text = "Total for all users: 9 jobs; 1 completed, 0 removed, 2 idle, 3 running, 4 held, 5 suspended\n"
    assert output.read_counts(f"Total for ada: 0 jobs; 0 idle\n{text}") == (8, 6)
    with pytest.raises(Unreachable):
        output.read_counts("All queues are empty")


def pool(*found: dict[str, object]) -> Sequence[machines.PoolMachine]:
    return machines.read_machines(ads(*found), {**machines.STANDARD, "Si00": "SpecInt"})


SLOT = {
    "Name": "slot1@n1",
    "Machine": "n1",
    "SlotType": "Partitionable",
    "TotalSlotCpus": 8.0,
    "TotalCpus": 8.0,
    "TotalSlotMemory": 16000,
    "TotalMemory": 16000,
    "Cpus": 3,
    "State": "Unclaimed",
    "Arch": "X86_64",
    "SpecInt": 12.5,
}


def test_machines_are_hosts_with_the_attributes_of_the_rules() -> None:
    drained = {**SLOT, "Machine": "n2", "State": "Drained"}
    found = machines.describe_ce(
        output.ScheddAd("s", 1, "$CondorVersion: 23.9.6 x $"), "", pool(SLOT, drained), 1, 2
    )
    assert found.attributes["GlueCEInfoTotalCPUs"] == 16
    assert found.attributes["GlueCEStateFreeCPUs"] == 3
    assert found.attributes["UnavailableHosts"] == 1
    assert found.attributes["GlueCEInfoLRMSVersion"] == "23.9.6"
    [known] = found.host_classes
    assert known.hosts == ("n1",)
    assert known.attributes["Si00"] == 12.5
    assert known.attributes["GlueHostArchitecturePlatformType"] == "x86_64"
    assert known.attributes["GlueHostArchitectureSMPSize"] == 8


def test_fixed_slots_are_machines_of_their_own() -> None:
    slot = {**SLOT, "SlotType": "Static", "State": "Claimed", "Cpus": 1, "TotalSlotCpus": 1}
    [machine] = pool(slot)
    assert (machine.name, machine.cores, machine.free) == ("slot1@n1", 1, 0)


def test_a_pool_without_machines_refuses_nothing() -> None:
    assert output.largest_fitting([], 4, 100) == ""
    assert "largest has 8 cores" in output.largest_fitting([(8, 1000)], 9, 100)


def test_the_policy_knows_the_type() -> None:
    text = """
[groups.all]
[users.ada]
groups = ["all"]
[sites.here]
[ces.condor]
site = "here"
type = "htcondor"
[ces.condor.htcondor]
schedd = "ce.example.org"
[ces.condor.forward]
GlueHostBenchmarkSI00 = "attribute SpecInt"
"""
    assert parse(text).ces["condor"].options_as(HtcondorOptions).schedd == "ce.example.org"
