# ruff: noqa: E501
"""Every parser of what comes from outside, with good texts to begin from.

A target reads one text. It may raise `InvalidInput`, and nothing else.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from scripts.reference.requests import EXAMPLE as REQUEST
from scripts.reference.requests import STEPS_EXAMPLE as REQUEST_OF_STEPS

from pilotage.cli.job_selection import parse_state
from pilotage.cli.time_format import parse_duration, parse_instant
from pilotage.client.selections import parse_ids
from pilotage.client.tables import read_table
from pilotage.core import policy as policies
from pilotage.core.brokering.ad_text import load_ce_ads, parse_ads, suspicions_of
from pilotage.core.classads import (
    Attribute,
    canonical,
    evaluate,
    parse_ad,
    parse_expression,
    suspicions,
    unparse,
)
from pilotage.core.classads.patterns import compiled
from pilotage.core.datasets.arrangement import by_folder, in_sizes
from pilotage.core.datasets.facts import MAX_EVENTS, MAX_SIZE, check_entry_name, check_lumis, check_number
from pilotage.core.datasets.manifest import parse_manifest
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.jdl import parse_jdl
from pilotage.core.jobs.json_format import description_from_json, description_to_json
from pilotage.core.jobs.parsers import from_json, from_yaml, parse_yaml_mapping
from pilotage.core.policy.dirac_cfg import import_policy
from pilotage.core.policy.entitlements import read_entitlement
from pilotage.core.queues.identity import cpu_bucket, size_bucket
from pilotage.core.requests.json_format import specification_from_text, specification_to_text
from pilotage.core.requests.parser import parse_text as parse_request
from pilotage.core.requests.plan import plan_steps
from pilotage.core.trace_context import read_traceparent
from pilotage.outside.batch.command_client import UnreadableOutput
from pilotage.outside.batch.sge import output as sge
from pilotage.outside.batch.slurm import output as slurm
from pilotage.outside.batch.slurm.commands import LINE_START
from pilotage.pilot.data_report import BadReport, parse_text
from pilotage.server.http import pilot_endpoints
from pilotage.server.http.json_bodies import decode_json
from pilotage.twin.ces_file import parse_ces
from pilotage.twin.workload.swf import MemoryUnit, SwfTrace, swf_jobs
from tests.fuzz import partial_evaluation

GLUE_CE = (Path(__file__).parents[1] / "unit/classads/glue_ce.ad").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Target:
    read: Callable[[str], Any]
    corpus: tuple[str, ...]


def _described(read: Callable[[str], Any]) -> Callable[[str], None]:
    """Reads a description; what was accepted can be stored, found again and put into a queue."""

    def check(text: str) -> None:
        submission = read(text)
        description = submission.description
        assert description_from_json(description_to_json(description)) == description
        assert 0 <= cpu_bucket(description.cpu_time, (500, 300000)) < 2**63
        assert 0 <= size_bucket(description.memory, (512, 1048576)) < 2**63
        for requirements in (description.requirements, description.host_requirements):
            if requirements:
                assert canonical(parse_expression(requirements)) == requirements

    return check


def _expression(text: str) -> None:
    tree = parse_expression(text)
    assert parse_expression(unparse(tree)) == tree
    evaluate(tree, AD, AD, now=0.0, rng=Random(0))
    evaluate(tree, AD)


def _ad(text: str) -> None:
    ad = parse_ad(text)
    suspicions(ad)
    for _, expression in ad.attributes:
        evaluate(expression, ad, AD)


def _pattern(text: str) -> None:
    for options in ("", "x", "ims"):
        compiled(text, options)
    pattern, options, subject = [*text.split("\n"), "", ""][:3]
    ad = parse_ad("[]")
    for arguments in ((pattern, subject, options), (pattern, subject * 100)):
        call = f"regexp({', '.join(map(_quoted, arguments))})"
        try:
            tree = parse_expression(call)
        except InvalidInput:
            continue
        evaluate(tree, ad)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _policy(text: str) -> None:
    policy = policies.parse(text)
    policies.warnings(policy)
    policies.known_properties(policy)
    policies.changes(POLICY, text)
    policies.changes(text, POLICY)


def _configuration(text: str) -> None:
    policies.parse(import_policy(text).text)


def _manifest(kind: str) -> Callable[[str], None]:
    """Reads a manifest; accepted files can be arranged and sent, and no name is listed twice."""

    def check(text: str) -> None:
        manifest = parse_manifest(text, kind)
        blocks = [*manifest.blocks, *in_sizes(by_folder(manifest.loose, manifest.replicas), 3)]
        names = [check_entry_name(file.name, "name") for block in blocks for file in block.files]
        assert len(names) == len(set(names)) == manifest.file_count
        for block in blocks:
            check_entry_name(block.name, "block")
            for file in block.files:
                check_number(file.size, "size", MAX_SIZE)
                check_number(file.events, "events", MAX_EVENTS)
                check_lumis(file.lumis)

    return check


def _people(text: str) -> None:
    """A submission as a route sees it."""
    plain = decode_json(text.encode("utf-8", "surrogatepass"))
    if isinstance(plain, dict):
        parse_yaml_mapping({str(name): value for name, value in plain.items()})


def _report(text: str) -> None:
    try:
        report = parse_text(text)
    except BadReport as error:
        raise InvalidInput(str(error)) from None
    for facts in report.outputs.values():
        assert facts.events >= 0
        assert all(0 <= first <= last for _, first, last in facts.lumis)


def _exchange(text: str) -> None:
    pilot_endpoints._decode(pilot_endpoints._exchange_request, text.encode("utf-8", "surrogatepass"))


def _enrol(text: str) -> None:
    pilot_endpoints._decode(pilot_endpoints._enrol_request, text.encode("utf-8", "surrogatepass"))


def _listed(read: Callable[[str], Any]) -> Callable[[str], None]:
    """Reads the output of a command of a batch system."""

    def check(text: str) -> None:
        try:
            answer = read(text)
            if isinstance(answer, Iterator):
                for _ in answer:
                    pass
        except UnreadableOutput as error:
            raise InvalidInput(str(error)) from None

    return check


def _table(text: str) -> None:
    table = read_table(io.BytesIO(text.encode("utf-8", "surrogatepass")), "table")
    for _ in table.rows:
        pass


def _field(name: str) -> Callable[[str], object]:
    return lambda text: parse_yaml_mapping({"executable": "a", name: text})


AD = parse_ad(GLUE_CE)
INFO = evaluate(parse_expression("info"), AD)
POLICY = policies.annotated("ada", "cellar")
ALL_ON = "\n".join(
    line[1:] if line.startswith("#") and not line.startswith("# ") and line != "#" else line
    for line in POLICY.splitlines()
)

YAML = (
    "executable: /bin/true\narguments: [a, 'b c', 3]\nenvironment: {A: x}\nmemory: 2 GB\ncpu_time: 2 h\nsites: [a, b]\n",
    "executable: run.sh\ninput_sandbox:\n  - path: /a\n    mode: shared\n  - url: http://x/y\nrequirements: 'other.Memory > 5'\n",
    "executable: sim\narguments: '--seed %(seed)s -o %n'\nparameters:\n  seed: {count: 3, start: 1, step: 2}\n  name: [a, b, c]\n",
    'executable: a\nsetup_lines: |\n  module load x\n  y\njob_name: "n\\u00e9"\nuser_priority: 3\n',
)
JSON = (
    '{"executable": "/bin/true", "arguments": ["a", 1, 2.5, true], "environment": {"A": "x"}, "memory": "2 GB"}',
    '{"executable": "a", "parameters": {"x": [1, 2, 3], "y": {"count": 3}}, "sites": ["a"], "tags": "GPU"}',
    '{"executable": "a\\u0041", "requirements": "regexp(\\"a+\\", other.Hostname)", "user_priority": 10}',
)
JDL = (
    '[ Executable = "/bin/true"; Arguments = "a b"; CPUTime = 500; Site = {"A", "B"}; ]',
    'Executable = "sim"; Parameters.Seed = {1, 2, 3};\nArguments = "%(Seed)s"; StdOutput = "o%n"; // end\n',
    '[ JobType = "Parametric"; Executable = "x"; Parameters = 10; ParameterStart = 1; ParameterStep = 2;'
    ' Arguments = "_PARAM_"; ]',
    'Executable = "a"; Requirements = other.GlueHostMainMemoryRAMSize > 500 && regexp("^a.*", other.Hostname);'
    ' OutputSandbox = {"a", "b/*.root"}; InputSandbox = {"x"}; Memory = 2048;',
)
EXPRESSIONS = (
    'other.GlueCEStateStatus == "Production" && other.GlueCEStateFreeCPUs > 1 || member("a", {"a", 1, 2.5e3})',
    'ifThenElse(isUndefined(x), strcat("a", string(1)), [a = 1; b = a + 1].b) ?: -1 % 3 << 2',
    'regexp("a(b|c)*", "abc", "i") =?= true ? size(split("a, b")) : versioncmp("1.9", "1.10")',
    "{1, {2, 3}}[1][0] + sum({1, 2.5}) - quantize(5, {4, 8}) * pow(2, 3) / 7 | 3 ^ 5 & ~2",
    'anyCompare("<", {1, 2}, 3) && stringListMember("a", "a b,c") && join("-", {"a", "b"}) != substr("abc", -2, 1)',
)
REQUIREMENTS = (
    "other.GlueHostBenchmarkSI00 > 500 ? other.GlueCEPolicyMaxCPUTime > 1000 : other.GlueCEPolicyMaxCPUTime > 2000",
    '(other.LRMSType == "pbs" || TARGET.GlueCEStateFreeCPUs >= 1 && GlueHostArchitectureSMPSize < 4) && !(member("APP1",'
    " other.GlueHostApplicationSoftwareRunTimeEnvironment) && other.GlueHostMainMemoryRAMSize * 2 > 500)",
    'isUndefined(other.OutputSE) || (QueueName ?: "x") =?= "infinite" && other.GlueForeignKey[0] != "" || !PurchasedBy',
)
PARTIAL_ADS = (
    "[a = other.TTLCEinfo > b && c; b = x; c = a || d; d = [e = b + 1; f = d.e]; g = {a, d.e, [h = 1]}; i = g[2].h > d.e]",
    '[A = member(other.QueueName, L) || B; L = {"x", my.M, TARGET.LRMSType}; B = size(L) > N ? L[N] == "x" : N ?: true]',
)
CFG = (
    "Registry\n{\n  Groups\n  {\n    prod\n    {\n      JobShare = 4000\n      Properties = NormalUser, JobSharing\n"
    "      Users = ada, bob\n    }\n  }\n  Users\n  {\n    ada\n    {\n      DN = /C=CH/CN=ada\n    }\n  }\n}\n"
    "Operations\n{\n  Scheduling\n  {\n  ShareCorrections\n  {\n    ShareCorrectorsToStart = WMSHistory\n    WMSHistory\n"
    "    {\n      GroupsInstance\n      {\n        MaxGlobalCorrectionFactor = 3\n        WeekSlice\n        {\n"
    "          TimeSpan = 604800\n          Weight = 80\n          MaxCorrection = 2\n        }\n      }\n    }\n  }\n  }\n}\n",
    "Resources\n{\n  Sites\n  {\n    LCG\n    {\n      LCG.CERN.ch\n      {\n        CE = ce1\n        CEs\n        {\n"
    "          ce1\n          {\n            CEType = Local # x\n            MaxRAM = 2000\n          }\n        }\n      }\n"
    "    }\n  }\n}\nRegistry\n{\n  Groups\n  {\n    g\n    {\n    }\n  }\n}\n",
)
REPORTS = (
    '{"outputs": {"hits.root": {"events": 100, "lumis": [[1, 5, 9], [2, 0, 0]]}}, "message": "2 bad channels"}',
    '{"outputs": {"a/../b": {}}, "message": ""}',
)
EXCHANGE = (
    '{"incarnation": 1, "confirms": [{"job": 1, "epoch": 2}], "holding": [{"job": 1, "epoch": 2}], "take": {"number": 3,'
    ' "count": 2, "node": {"hostname": "n", "processors": 4, "memory": 2048, "cpu_left": 1e5, "tags": ["GPU"],'
    ' "attributes": {"OS": "x"}}, "ahead": 1}}',
    '{"incarnation": 1, "finishes": [{"job": 1, "epoch": 2, "exit_code": 0, "wall": 1.5, "stdout": "YQ==", "outputs":'
    ' ["a"], "missing": ["b*"]}], "releases": [{"job": 1, "epoch": 1, "reason": "x"}], "leaving": ""}',
    '{"incarnation": 1, "finishes": [{"job": 1, "epoch": 1, "exit_code": 0, "files": [{"name": "3/1-1/x", "pattern":'
    ' "x", "place": "/s", "prefix": "/s/d", "size": 5, "checksum": "adler32:00000001", "events": 4,'
    ' "lumis": [[1, 2, 3]]}]}]}',
)
ENROL = (
    '{"secret": "s", "index": 0, "nonce": "n", "protocol": 1, "version": "1", "hostname": "h", "batch_id": "7"}',
)
PATTERNS = (
    "^lcg.*\\.cern\\.(ch|org)$\ni\nlcg17.cern.ch",
    "(a+)+$\n\naaaaaaaaaaaaaaaa!",
    "[[:alpha:]_][^]x-z]*\\d{2,5}?\nx\nab 12",
    "(?P<n>a|b)*c # x\nxs\nabc",
)
MANIFESTS = {
    "json": (
        '{"name": "/a/b", "closed": true, "replicas": {"here": "/d"}, "blocks": [{"name": "x", "files":'
        ' [{"name": "f", "size": 5, "events": 2, "checksum": "adler32:00000001", "lumis": [[1, 2, 3]]}]}]}',
        '{"prefix": "/data", "events_per_file": 7, "files": ["a/b", {"name": "c", "block": "x"}]}',
    ),
    "yaml": (
        "name: /a/b\nreplicas:\n  here: /d\nblocks:\n- name: x\n  files:\n  - {name: f, size: 5, lumis: [[1, 2, 3]]}\n",
        "prefix: root://h//x\nfiles:\n- a/b\n- name: c\n  events: 3\n",
    ),
    "toml": (
        'name = "/a/b"\nreplicas.here = "/d"\n[[blocks]]\nname = "x"\n[[blocks.files]]\nname = "f"\nlumis = [[1, 2, 3]]\n',
        'files = ["a/b", {name = "c", size = 4}]\nprefix = "/data"\n',
    ),
    "jsonl": ('{"name": "a/b", "size": 3}\n"c"\n\n{"name": "d", "block": "x", "lumis": [[1, 2, 3]]}\n',),
    "list": ("/data/a/b\n/data/a/c\n# x\n\n/data/d\n", "a/b\nc\n", "https://h/x/y\nhttps://h/z\n"),
}
TABLES = ('a,b\n1,2\n"x,y",z\n', '{"a": 1, "b": "x"}\n{"a": 2.5, "b": true}\n')
SPANS = ("90", "90s", "15m", "2h", "1h30m", "3d", "01:30:00", "1.5h", "2 min")
INSTANTS = (*SPANS, "2026-11-05", "2026-11-05 14:30", "2026-11-05T14:30:00+01:00")
SWF = ("7 100 5 60 4 -1 -1 8 3600 2048 1 12 3 -1 -1 -1 -1 -1", "; MaxProcs: 8")
SIZES = ("500 MB", "2GB", "1.5 TiB", "7", "0")
TIMES = ("30 min", "2 h", "1:30:00", "1-12", "90s", "7")


QSTAT = (
    '<?xml version="1.0"?><job_info><queue_info><job_list state="running"><JB_job_number>7</JB_job_number>'
    "<JB_name>p</JB_name><state>r</state><queue_name>all.q@n1</queue_name><tasks>1-3:1</tasks></job_list>"
    '</queue_info><job_info><job_list state="pending"><JB_job_number>8</JB_job_number><state>hqw</state>'
    "</job_list></job_info></job_info>",
)
QSTAT_JOBS = (
    "<detailed_job_info><djob_info><element><JB_job_number>7</JB_job_number><JB_context><context_list><VA_variable>a"
    "</VA_variable><VA_value>b</VA_value></context_list></JB_context></element></djob_info><messages><element>"
    "<SME_message_list><element><MES_job_number_list><job ids><ULNG_value>7</ULNG_value></job ids>"
    "</MES_job_number_list><MES_message>no queue</MES_message></element></SME_message_list></element></messages>"
    "</detailed_job_info>",
)
QACCT = ("=====\njobname p\njobnumber 7\ntaskid 2\nfailed 0\nexit_status 137\nhostname n1\n=====\nqname q\n",)
SQUEUE = (f"{LINE_START}7|1|RUNNING|n1|p|None\n{LINE_START}8|N/A|PENDING||q|JobHeldUser\n",)
SACCT = ("7_1|FAILED|1:0|None|n1|p\n8|CANCELLED by 1000|0:0|Priority|None assigned|q\n",)


def _request(kind: str) -> Callable[[str], None]:
    """Reads a request; an accepted one can be stored and found again, and has steps that follow each other."""

    def check(text: str) -> None:
        request = parse_request(text, kind)[0]
        assert specification_from_text(specification_to_text(request)) == request
        steps = plan_steps(request, 7)
        assert [step.position for step in steps] == list(range(len(steps)))
        assert all(step.after is None or step.after < step.position for step in steps)

    return check


REQUEST_YAML = (
    "name: n\nevents: 10\nprogram: {executable: x}\nsplitting: {algorithm: EventBased, events_per_job: 2}\n"
)
REQUEST_JSON = (
    '{"name": "n", "input": ["a", "b"], "program": {"executable": "x"}, "output": {"files": "o"}, "merge": true,'
    ' "splitting": {"algorithm": "SizeBased", "size_per_job": "2 GB"}, "retry": {"max_retries": 2}}',
)


CONDOR_MACHINE = (
    'MyType = "Machine"\nName = "slot1@n7"\nCpus = 8\nMemory = 16000\nStart = TARGET.RequestMemory <= Memory\n'
    'Requirements = START\nPath = "C:\\temp \\"x\\""\nLastHeardFrom = 1200000000\n\nName = "slot2@n7"\nCpus = 2\n'
)


def _ce_ads(text: str) -> None:
    """An ad that is read keeps its name and attributes in the form of the document."""
    for ad in parse_ads(text):
        suspicions_of(ad)
    for loaded in load_ce_ads(text, now=1_200_000_000.0, allow_expired=True):
        [again] = load_ce_ads(unparse(loaded.document()), now=1_200_000_000.0, allow_expired=True)
        assert (again.name, again.ad) == (loaded.name, loaded.ad)
        evaluate(Attribute("Requirements"), loaded.ad, AD)


TARGETS: dict[str, Target] = {
    "ce-ads": Target(
        _ce_ads, (GLUE_CE, CONDOR_MACHINE, '[id = "a"; update_time = 1.5; info = [x = y; y = x]]')
    ),
    "request": Target(_request("toml"), (REQUEST, REQUEST_OF_STEPS)),
    "request-yaml": Target(_request("yaml"), (REQUEST_YAML, *REQUEST_JSON)),
    "request-json": Target(_request("json"), REQUEST_JSON),
    "yaml": Target(_described(from_yaml), YAML + JSON),
    "json": Target(_described(from_json), JSON),
    "jdl": Target(_described(parse_jdl), JDL),
    "expression": Target(_expression, EXPRESSIONS),
    "ad": Target(_ad, (GLUE_CE, *(f"[a = {one}; b = a]" for one in EXPRESSIONS))),
    "residual": Target(
        lambda text: partial_evaluation.read_expression(text, INFO), EXPRESSIONS + REQUIREMENTS
    ),
    "residual-ad": Target(lambda text: partial_evaluation.read_ad(text, INFO), PARTIAL_ADS),
    "pattern": Target(_pattern, PATTERNS),
    "policy": Target(_policy, (POLICY, ALL_ON)),
    "cfg": Target(_configuration, CFG),
    "people": Target(_people, JSON),
    "entitlement": Target(read_entitlement, ("urn:mace:egi.eu:group:vo%20x:sub:role=member#aai.egi.eu",)),
    "traceparent": Target(read_traceparent, (f"00-{'4bf92f35' * 4}-00f067aa0ba902b7-01",)),
    "exchange": Target(_exchange, EXCHANGE),
    "enrol": Target(_enrol, ENROL),
    "report": Target(_report, REPORTS),
    "table": Target(_table, TABLES),
    **{f"manifest-{kind}": Target(_manifest(kind), texts) for kind, texts in MANIFESTS.items()},
    "sge-listing": Target(_listed(sge.read_listing), QSTAT),
    "sge-reasons": Target(_listed(sge.read_reasons), QSTAT_JOBS),
    "sge-context": Target(_listed(sge.read_context), QSTAT_JOBS),
    "sge-ended": Target(_listed(sge.read_accounted), QACCT),
    "slurm-listing": Target(_listed(slurm.read_listing), SQUEUE),
    "slurm-ended": Target(_listed(lambda text: slurm.read_accounted(text, str)), SACCT),
    "ids": Target(lambda text: parse_ids(text.split()), ("12", "12-40", "12,15 7-9", "1 2 3")),
    "states": Target(parse_state, ("Done", "failed", "Waiting")),
    "span": Target(parse_duration, SPANS),
    "instant": Target(lambda text: parse_instant(text, 1.7e9), INSTANTS),
    "swf": Target(
        lambda text: list(swf_jobs([text.encode("utf-8", "replace")], SwfTrace(), MemoryUnit.SWF)), SWF
    ),
    "twin-ces": Target(parse_ces, ("[ces.a]\nwaits = [0, 9]\n[[ces.a.nodes]]\ncount = 1\nprocessors = 2\n",)),
    "memory": Target(_field("memory"), SIZES),
    "time": Target(_field("wall_time"), TIMES),
}
