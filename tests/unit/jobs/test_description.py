"""Job descriptions by example: JDL, YAML, JSON; what is refused and where."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from pilotage.cli.time_format import parse_duration
from pilotage.core.errors import InvalidInput, Mistakes, TooLarge
from pilotage.core.jobs.description import InputFile, JobDescription
from pilotage.core.jobs.fields import BY_NAME, FIELDS
from pilotage.core.jobs.jdl import parse_jdl
from pilotage.core.jobs.json_format import description_from_json
from pilotage.core.jobs.parametric import bind, placeholder_warnings
from pilotage.core.jobs.parsers import description_from_text, from_json, from_yaml, parse_yaml_mapping

JDL = """
[
  // a job as users of DIRAC write it
  Executable = "sim.sh";
  Arguments = "--seed 5 --out 'a b' \\"c d\\"";
  Environment = {"A=1", "B=x=y"};
  InputSandbox = {"sim.sh", "shared:/data/geo.root", "https://example.org/x/cal.db?v=2"};
  OutputSandbox = {"*.log", "hist.root"};
  StdOutput = "out.txt";
  JobName = "sim"; JobGroup = "g1";
  Priority = 7;
  CPUTime = 3600; MinRAM = 2000;
  NumberOfProcessors = 4;
  Site = {"LCG.CERN.ch", "LCG.PIC.es"}; BannedSites = "LCG.PIC.es";
  Platform = "ANY";
  Tags = {"GPU"}; WholeNode = true;
  Requirements = other.GlueHostBenchmarkSI00 > 500 && Member("x86_64", other.Archs);
  LogLevel = "debug";
]
"""


def one(jdl: str) -> JobDescription:
    return parse_jdl('Executable = "x"; ' + jdl).description


def mapped(**fields: Any) -> JobDescription:
    return parse_yaml_mapping({"executable": "x", **fields}).description


def test_jdl() -> None:
    submission = parse_jdl(JDL)
    assert submission.count == 1
    assert submission.names == ()
    assert submission.description == JobDescription(
        executable="sim.sh",
        arguments=("--seed", "5", "--out", "a b", "c d"),
        environment=(("A", "1"), ("B", "x=y")),
        input_sandbox=(
            InputFile("sim.sh", "copy", "sim.sh"),
            InputFile("geo.root", "shared", "/data/geo.root"),
            InputFile("cal.db", "url", "https://example.org/x/cal.db?v=2"),
        ),
        output_sandbox=("*.log", "hist.root"),
        std_output="out.txt",
        job_name="sim",
        job_group="g1",
        user_priority=7,
        cpu_time=3600,
        memory=2000,
        processors=4,
        sites=("LCG.CERN.ch",),
        tags=("GPU",),
        whole_node=True,
        requirements='other.gluehostbenchmarksi00 > 500 && member("x86_64", other.archs)',
        log_level="DEBUG",
    )
    assert submission.description.required_tags == ("GPU", "WholeNode")


def test_yaml_says_the_same_as_jdl() -> None:
    text = """
executable: sim.sh
arguments: [--seed, 5, --out, a b, c d]
environment: {A: 1, B: x=y}
input_sandbox:
  - sim.sh
  - {path: /data/geo.root, mode: shared}
  - {url: "https://example.org/x/cal.db?v=2"}
output_sandbox: ["*.log", hist.root]
std_output: out.txt
job_name: sim
job_group: g1
user_priority: 7
cpu_time: 1 h
memory: 2000 MB
processors: 4
sites: [LCG.CERN.ch, LCG.PIC.es]
banned_sites: LCG.PIC.es
platforms: any
tags: GPU
whole_node: true
requirements: other.GlueHostBenchmarkSI00 > 500 && member("x86_64", other.archs)
log_level: debug
"""
    assert from_yaml(text) == parse_jdl(JDL)


def test_yaml_keeps_texts_as_they_are_written() -> None:
    found = from_yaml(
        "executable: x\narguments: [010, 1.10, no, 12:30, 2024-01-02, 1e3, true, 7]"
    ).description
    assert found.arguments == ("010", "1.10", "no", "12:30", "2024-01-02", "1e3", "true", "7")


@pytest.mark.parametrize(
    ("amount", "megabytes"), [(500, 500), ("500", 500), ("2 GB", 2048), ("1.5g", 1536), ("0.1 MB", 1)]
)
def test_amounts_of_memory(amount: object, megabytes: int) -> None:
    assert mapped(memory=amount).memory == megabytes


@pytest.mark.parametrize(
    "read", [lambda: from_yaml("executable: 1"), lambda: from_json('{"executable": 1.5}')]
)
def test_a_number_is_no_program(read: Callable[[], object]) -> None:
    """Its arguments may be numbers."""
    with pytest.raises(InvalidInput, match="executable must be a text, not the number 1"):
        read()
    assert from_yaml("executable: '1'\narguments: [1]").description.arguments == ("1",)


def test_defaults_and_the_table_agree() -> None:
    assert [field.name for field in FIELDS] == [field.name for field in dataclasses.fields(JobDescription)]
    assert parse_jdl('Executable = "x"').description == JobDescription("x")
    assert BY_NAME["executable"].default is dataclasses.MISSING


@pytest.mark.parametrize(
    ("jdl", "line", "part"),
    [
        ('Executable = "x";\nSitee = "A";', 2, "did you mean Site"),
        ('Executable = "x";\n\nCPUTime = "long";', 3, "CPUTime must be a number of seconds"),
        ('Executable = "x";\nexecutable = "y";', 2, "given twice"),
        ('Executable = "x";\nMemory = 1; MinRAM = 2;', 2, "given twice"),
        ('Executable = "x";\nInputData = {"LFN:/vo/1"};', 2, "no data would be transferred"),
        ('Executable = "x";\nOutputPath = "/x";', 2, "no data would be transferred"),
        ('Executable = "x";\nArguments = "don\'t";', 2, "unclosed quote"),
        ('Executable = "x";\nArguments = 1 + 2;', 2, "constant"),
        ('Executable = "x";\nRequirements = other.A > ;', 2, "not expected"),
        ('Executable = "x";\nRequirements = "other.A >";', 2, "Requirements: the text ends"),
        ('Executable = "x"\nSite = "A";', 2, "';'"),
        ('Executable = "x";\nPriority = 11;', 2, "0 to 10"),
        ('Executable = "x";\nPriority = true;', 2, "not true"),
        ('Executable = "x";\nLogLevel = "DEBUGGG";', 2, "one of DEBUG"),
        ('Executable = "x";\nPilotTypes = "strange";', 2, "must be private"),
        ('Executable = "x";\nPilotTypes = {"private", "Generic"};', 2, "ForceGeneric"),
        ('Executable = "x";\nEnvironment = {"A"};', 2, "NAME=value"),
        ('Executable = "x";\nEnvironment = {"A=1", "A=2"};', 2, "set twice"),
        ('Executable = "x";\nEnvironment = {"A b=1"};', 2, "not a valid variable name"),
        ('Executable = "x";\nStdOutput = "/etc/x";', 2, "absolute"),
        ('Executable = "x";\nOutputSandbox = {"a/../../b"};', 2, "outside of the job's folder"),
        ('Executable = "x";\nStdError = "";', 2, "not a file name"),
        ('Executable = "x";\nInputSandbox = {"a/f", "b/f"};', 2, "two input files"),
        ('Executable = "x";\nInputSandbox = {"LFN:/vo/f"};', 2, "not supported yet"),
        ('Executable = "x";\nInputSandbox = {"shared:rel/f"};', 2, "must be absolute"),
        ('Executable = "x";\nSite = "A"; BannedSites = "A";', 2, "banned"),
        ('Executable = "x";\nPilotTypes = "private"; ForceGeneric = true;', 2, "generic"),
        ('Executable = "x";\nProcessors = 4; MaxProcessors = 2;', 2, "must be at least"),
        ('Executable = "x";\nParameters = {};', None, "no job"),
        ('Executable = "x";\nParameterStep = 1;', 2, "needs the attribute Parameters"),
        ('Executable = "x";\nParameters = {1}; ParameterStep = 1;', 2, "cannot be used with a list"),
        ('Executable = "x";\nParameters.A = {1}; Parameters.B = {1, 2};', None, "same number of values"),
        ('Executable = "x";\nParameters = 2; Site = "S%n";', 2, "task queue"),
        ('Executable = "x";\nParameters = 2; CPUTime = "%s";', 2, "task queue"),
        ('Executable = "x";\nParameters = 2; Requirements = other.A == "%s";', 2, "task queue"),
        ('Executable = "%(A)s";\nParameters.B = {1};', 1, "no parameter"),
        (
            'Executable = "x";\nParameters = {"..", "a"}; OutputSandbox = {"%s/f"};',
            2,
            "outside of the job's folder",
        ),
        ('Executable = "%s";\nParameters = {"a", ""};', 1, "empty"),
        ('Executable = "";', 1, "empty"),
        ('Executable = "x";\nSite = 1;', 2, "must be a name"),
        ('Site = "A";', None, "missing"),
        ('Type = "Collection"; Executable = "x"', 1, "not supported"),
    ],
)
def test_refused_with_a_place(jdl: str, line: int | None, part: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_jdl(jdl)
    assert part in str(caught.value)
    assert caught.value.line == line


WRONG_JDL = """[
  Executable = 5 + 5;
  Colour = "red";
  Priority = 11;  Memory = "much";
  Site = {"A"}; BannedSites = {"A"};
  StdOutput = "../out";
  Priority = 3;
]"""
WRONG_YAML = """\
colour: red
user_priority: 11
memory: much
sites: [A]
banned_sites: [A]
std_output: ../out
"""


def places(error: InvalidInput) -> list[tuple[int | None, int | None, str | None]]:
    assert isinstance(error, Mistakes)
    return [(one.line, one.column, one.field) for one in error.all]


def test_all_mistakes_of_a_jdl_are_told_at_once_each_with_its_place() -> None:
    with pytest.raises(Mistakes) as caught:
        parse_jdl(WRONG_JDL)
    assert places(caught.value) == [
        (2, 3, "Executable"),
        (3, 3, "Colour"),
        (4, 3, "user_priority"),
        (4, 19, "memory"),
        (5, 3, "sites"),
        (6, 3, "std_output"),
        (7, 3, "Priority"),
        (None, None, "executable"),
    ]
    text = str(caught.value)
    assert text.startswith("8 mistakes:\n  line 2, column 3: Executable must be a constant")
    assert "line 4, column 19: Memory must be a number of megabytes" in text


def test_all_mistakes_of_a_yaml_are_told_at_once_each_with_its_place() -> None:
    with pytest.raises(Mistakes) as caught:
        from_yaml(WRONG_YAML)
    assert places(caught.value) == [
        (1, 1, "colour"),
        (2, 1, "user_priority"),
        (3, 1, "memory"),
        (4, 1, "sites"),
        (6, 1, "std_output"),
        (None, None, "executable"),
    ]


def test_very_many_mistakes_make_no_very_long_message() -> None:
    with pytest.raises(Mistakes) as caught:
        parse_jdl("".join(f"A{n} = 1;\n" for n in range(3000)))
    assert len(caught.value.all) == 3001
    assert len(caught.value.message.splitlines()) == 52
    assert caught.value.message.endswith("... and 2,951 more")


GLITE = """[
  JobType = "Parametric";
  Executable = "/bin/sim";
  Arguments = "--in f_PARAM_.txt _PARAM_";
  StdOutput = "out_PARAM_.txt"; StdError = "err_PARAM_.txt";
  InputSandbox = {"f_PARAM_.txt"};
  OutputSandbox = {"out_PARAM_.txt"};
  Environment = {"SEED=_PARAM_"};
  JobName = "sim-_PARAM_";
  %s
]"""


@pytest.mark.parametrize(
    ("parameters", "values"),
    [
        ("Parameters = 3;", ["0", "1", "2"]),
        ("Parameters = 10; ParameterStart = 1; ParameterStep = 4;", ["1", "5", "9"]),
        ("Parameters = 0; ParameterStart = 4; ParameterStep = -2;", ["4", "2"]),
        ('Parameters = {"alpha", "beta"};', ["alpha", "beta"]),
    ],
)
def test_gLites_parametric_jobs(parameters: str, values: list[str]) -> None:
    submission = parse_jdl(GLITE % parameters)
    assert submission.description.job_type == "User"
    jobs = [
        bind(submission.description, submission.names, row, index, submission.count)
        for index, row in enumerate(submission.parameters)
    ]
    assert [job.arguments for job in jobs] == [("--in", f"f{v}.txt", v) for v in values]
    assert [job.std_output for job in jobs] == [f"out{v}.txt" for v in values]
    assert [job.environment for job in jobs] == [(("SEED", v),) for v in values]
    assert [job.job_name for job in jobs] == [f"sim-{v}" for v in values]
    assert [job.input_sandbox[0].source for job in jobs] == [f"f{v}.txt" for v in values]
    assert placeholder_warnings(submission.description, submission.names) == []


@pytest.mark.parametrize(
    ("jdl", "part"),
    [
        (GLITE % "", "attribute Parameters is missing"),
        (GLITE % "Parameters = 3; ParameterStart = 3;", "end of the values"),
        (GLITE % "Parameters = 3; ParameterStep = 0;", "steps of 0"),
        (GLITE % 'Parameters = 3; Site = "LCG._PARAM_.ch";', "placeholder is not allowed"),
        (GLITE % 'Parameters = 3; Requirements = other.Name == "_PARAM_";', "placeholder is not allowed"),
    ],
)
def test_gLites_parametric_jobs_that_cannot_be(jdl: str, part: str) -> None:
    with pytest.raises(InvalidInput, match=part):
        parse_jdl(jdl)


def test_DIRACs_count_stays_a_count() -> None:
    text = 'Executable = "x"; Arguments = "%s"; Parameters = 3; ParameterStart = 1; ParameterStep = 5;'
    assert parse_jdl(text).parameters == ((1,), (6,), (11,))


@pytest.mark.parametrize(
    ("jdl", "warnings"),
    [
        ('Arguments = "%s %n %%d %j";', ["%s in arguments", "%n in arguments"]),
        ('Arguments = "_PARAM_"; Parameters = 2;', ["_PARAM_ in arguments"]),
        ('JobName = "a-%s"; StdOutput = "%s"; Parameters.A = {1};', ["%s in std_output and job_name"]),
        ('JobGroup = "g-%s"; SetupLines = "echo %s"; Parameters = 2;', ["%s in setup_lines and job_group"]),
        ('SetupLines = "date +%s";', []),
        ('Arguments = "%s %n"; Parameters = 2;', []),
    ],
)
def test_placeholders_that_nothing_fills_are_told(jdl: str, warnings: list[str]) -> None:
    submission = parse_jdl(f'Executable = "x"; {jdl}')
    told = placeholder_warnings(submission.description, submission.names)
    assert len(told) == len(warnings)
    for text, part in zip(told, warnings, strict=True):
        assert text.startswith(part + " is passed on unchanged")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1:30", 90),
        ("90:00", 5400),
        ("1:30:00", 5400),
        ("1-12", 129_600),
        ("1-12:30", 131_400),
        ("1-12:30:15", 131_415),
        ("90", 90),
        ("90 min", 5400),
    ],
)
def test_times_as_Slurm_reads_them(text: str, seconds: int) -> None:
    assert parse_jdl(f'Executable = "x"; WallTime = "{text}";').description.wall_time == seconds
    assert parse_duration(text) == seconds


def test_the_documents_names_are_read_too() -> None:
    description = parse_jdl(
        'Executable = "x"; GridCEs = {"a"}; GridMiddlewares = "b"; LHCbPlatforms = {"c", "d"}; Sites = "e";'
        ' SubmitPools = "f"; PilotTypes = "private"; BannedSites = "g";'
    ).description
    assert (description.grid_ces, description.grid_middlewares) == (("a",), ("b",))
    assert (description.platforms, description.sites) == (("c", "d"), ("e",))
    assert (description.submit_pools, description.pilot_types) == (("f",), ("private",))
    for other in ("LHCbPlatform", "Platforms", "Platform"):
        assert parse_jdl(f'Executable = "x"; {other} = "c";').description.platforms == ("c",)


def test_a_description_of_an_earlier_version_that_names_generic_pilots_is_still_read() -> None:
    stored = {"executable": "x", "pilot_types": ["generic"]}
    assert description_from_json(stored).pilot_types == ("generic",)


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("executable: x\nsites: a\nsites: b", 3, "given twice"),
        ("executable: x\nsite: a", 2, "its name is sites"),
        ("executable: x\nCPUTime: 5", 2, "cpu_time"),
        ("executable: x\nmemory: 2 XB", 2, "500 MB or 2 GB"),
        ("executable: x\nsites:", 2, "not empty"),
        ("executable: &a x\njob_name: *a", 1, "anchors"),
        ("executable: !!python/object:os.system x", 1, "tag"),
        ("executable: a: b", 1, "invalid YAML"),
        ("- x", 1, "one mapping"),
        ("executable: x\nrequirements: 'a >'", 2, "the text ends"),
        ("executable: x\nparameters: {count: 5, stpe: 2}", 2, "list of values"),
        ("executable: x\nparameters: {}", 2, "empty"),
        ("executable: x\ninput_sandbox: [{path: a, mode: url}]", 2, "mode"),
        ("executable: x\ninput_sandbox: [{path: a, colour: red}]", 2, "unknown key"),
    ],
)
def test_yaml_refused_with_a_place(text: str, line: int, part: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        from_yaml(text)
    assert part in str(caught.value)
    assert caught.value.line == line


def test_json() -> None:
    assert from_json('{"executable": "x", "arguments": ["a"]}').description == JobDescription("x", ("a",))
    for text in ('{"executable": "x", "executable": "y"}', "[1]", "{", '{"executable": NaN}', "[" * 100_000):
        with pytest.raises(InvalidInput):
            from_json(text)
    with pytest.raises(InvalidInput):
        description_from_text("x", "xml")


def test_deeply_nested_yaml_is_refused() -> None:
    with pytest.raises(InvalidInput):
        from_yaml("executable: " + "[" * 400 + "]" * 400)


def test_any_means_all() -> None:
    found = one('Site = "any"; Platform = {"ANY", "x86"}; BannedSites = "";')
    assert (found.sites, found.platforms, found.banned_sites) == ((), (), ())


def test_lists() -> None:
    assert one('Site = "A, B,A";').sites == ("A", "B")
    assert one('PilotTypes = {"Private"};').pilot_types == ("private",)


@pytest.mark.parametrize(
    ("jdl", "values"),
    [
        ("Parameters = 3;", (0, 0, 0)),
        ("Parameters = 4; ParameterStart = 1; ParameterStep = 1; ParameterFactor = 2;", (1, 3, 7, 15)),
        ("Parameters = 3; ParameterStart = 1; ParameterFactor = 0.5;", (1, 0.5, 0.25)),
        ('Parameters = {"a", 2, true};', ("a", 2, True)),
    ],
)
def test_nameless_parameters(jdl: str, values: tuple[object, ...]) -> None:
    submission = parse_jdl('Executable = "x";' + jdl)
    assert submission.names == ("",)
    assert tuple(row[0] for row in submission.parameters) == values


def test_named_parameters_are_bound() -> None:
    submission = parse_jdl(
        'Executable = "run-%n"; Arguments = "%(Seed)s %s %j %(Mode)s date +%m"; JobName = "%(Mode)s";'
        'Environment = {"SEED=%(Seed)s"}; StdOutput = "out.%n"; InputSandbox = {"conf/%(Mode)s.ini"};'
        "Parameters.Seed = 11; ParameterStart.Seed = 5; ParameterStep.Seed = 10;"
        'Parameters.Mode = {"a","b","c","d","e","f","g","h","i","j","k"};'
    )
    assert submission.names == ("Seed", "Mode")
    assert submission.count == 11
    found = bind(submission.description, submission.names, submission.parameters[2], 2, submission.count)
    assert found.executable == "run-02"
    assert found.arguments == ("25", "%s", "%j", "c", "date", "+%m")
    assert found.environment == (("SEED", "25"),)
    assert found.job_name == "c"
    assert found.std_output == "out.02"
    assert found.input_sandbox == (InputFile("c.ini", "copy", "conf/c.ini"),)


def test_without_parameters_nothing_is_replaced() -> None:
    found = one('Arguments = "+%s %n"; Site = "a%s";')
    assert bind(found, (), (), 0, 1) is found
    assert found.sites == ("a%s",)


def test_yaml_parameters() -> None:
    def rows(value: object) -> object:
        return parse_yaml_mapping({"executable": "x", "parameters": value}).parameters

    assert rows([1, "a"]) == ((1,), ("a",))
    assert rows({"count": 3, "step": 2}) == ((0,), (2,), (4,))
    assert rows({"A": [1, 2], "B": {"count": 2, "start": 5}}) == ((1, 5), (2, 5))
    assert rows(2) == ((0,), (0,))
    assert from_yaml("executable: x\nparameters: [1.10, 010]").parameters == (("1.10",), ("010",))


def test_at_most_a_hundred_thousand_jobs() -> None:
    submission = parse_jdl('Executable = "x"; Parameters = 100000; ParameterStep = 1; StdOutput = "o%n";')
    assert submission.count == 100_000
    assert submission.parameters[-1] == (99_999,)
    with pytest.raises(TooLarge):
        parse_jdl('Executable = "x"; Parameters = 100001;')
    with pytest.raises(InvalidInput, match="64 bits"):
        parse_jdl('Executable = "x"; Parameters = 100; ParameterStart = 1; ParameterFactor = 10;')


def test_requirements_are_kept_canonical() -> None:
    assert one("Requirements = ( OTHER.Memory>=2000 );").requirements == "other.memory >= 2000"
    assert one('Requirements = "other.Memory>=2000";').requirements == "other.memory >= 2000"
    assert one("CERequirements = Other.X;").host_requirements == "other.x"


def test_messages_are_json_safe() -> None:
    with pytest.raises(InvalidInput) as caught:
        mapped(arguments=[{"a": 1}])
    assert json.dumps(caught.value.message)


@pytest.mark.parametrize("blank", ["\x1c", "\x1d", "\x85", "\u2003", " "])
def test_a_number_between_odd_blanks_is_read_or_refused(blank: str) -> None:
    # `re` and `int` differ in what a blank is.
    for text in (f"{blank}3", f"3{blank}"):
        assert parse_yaml_mapping({"executable": "a", "user_priority": text}).description.user_priority == 3
    with pytest.raises(InvalidInput, match="user_priority"):
        parse_yaml_mapping({"executable": "a", "user_priority": f"{blank}-3"})


@pytest.mark.parametrize("value", ['""', '"  "', '"ANY"', '"12,,13"', '[""]', '["12", ""]'])
@pytest.mark.parametrize("field", [field.name for field in FIELDS if field.kind == "parents"])
def test_a_parent_without_a_name_is_no_missing_condition(field: str, value: str) -> None:
    """A shell writes an empty text where a variable is not set."""
    with pytest.raises(InvalidInput, match="neither a job nor a submission"):
        from_json(f'{{"executable": "/bin/true", "{field}": {value}}}')


def test_lines_that_begin_with_a_number_sign_are_comments_of_jdl() -> None:
    text = '# a comment "\nExecutable = "/bin/true";\n  # { another\nArguments = "a # b";\n'
    submission = parse_jdl(text)
    assert (submission.description.executable, submission.description.arguments) == (
        "/bin/true",
        ("a", "#", "b"),
    )
