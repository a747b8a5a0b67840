"""The pages of docs/reference that are made from the code: `scripts/write-docs`.

A page is made as a whole, or holds a generated part between two comments.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from pilotage.cli.root import build as build_command_line
from pilotage.core import policy
from pilotage.core.forwarding.table import ForwardTable
from pilotage.core.jobs.states import JOB_STATES
from pilotage.core.pilots.states import PILOT_STATES
from pilotage.core.policy.batch_systems import BATCH_SYSTEMS
from pilotage.core.requests.states import REQUEST_STATES
from pilotage.core.workqueue.states import ELEMENT_JOB_STATES, ELEMENT_STATES
from pilotage.main.command_line import SERVER_COMMANDS
from pilotage.services.director.next_step import MOST_RELEASES
from scripts.reference import tables
from scripts.reference.ads import reference_markdown as attributes_of_ads
from scripts.reference.batch_systems import batch_systems_markdown
from scripts.reference.command_line import markdown as cli_markdown
from scripts.reference.database_checks import database_checks_markdown
from scripts.reference.faces import addresses, verbs
from scripts.reference.forwarding import forwarding_markdown
from scripts.reference.job_description import reference_markdown as job_description
from scripts.reference.plug_ins import doors_markdown
from scripts.reference.policy import correctors_markdown
from scripts.reference.policy import reference_markdown as keys_of_policy
from scripts.reference.requests import reference_markdown as request_specification
from scripts.reference.slurm_commands import slurm_commands_markdown

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
MADE = "<!-- Made by scripts/write-docs from {source}; a test holds the two equal. -->"
PART = re.compile(r"(<!-- Made by scripts/write-docs: (\w+) -->\n).*?(<!-- End of \2 -->)", re.DOTALL)

EXAMPLE = """\
[groups.physics]
share = 3000                        # three times as much as the next group
properties = ["NORMAL_USER", "JOB_SHARING"]

[groups.students]
share = 1000

[users.alice]
groups = ["physics", "students"]    # the first is the default

[users.bob]
groups = ["students"]

[sites.cellar]

[ces.local]
site = "cellar"
processors = 16
owners = "home"

[jobs]
max_reschedules = 3

[[limits]]                          # at most 200 jobs of this type at a time at this site
attribute = "job_type"
value = "Merge"
site = "cellar"
running = 200
"""


def states() -> str:
    return f"""\
{MADE.format(source="core/jobs, core/pilots, core/requests and core/workqueue (states.py of each)")}

# States of jobs, pilots, requests and elements

Every move is checked against these tables and stored together with its event. `pilotage status JOB` shows where a
job is and how it came there.

## Jobs

{tables.state_table(JOB_STATES)}

```mermaid
{tables.state_diagram(JOB_STATES)}
```

## Pilots

{tables.state_table(PILOT_STATES)}

```mermaid
{tables.state_diagram(PILOT_STATES)}
```

## Requests

`pilotage request history REQUEST` shows each move with its actor. Moves by intake and roll-up follow from the work;
the others are verbs of `pilotage request`. No state is skipped in the history.

{tables.state_table(REQUEST_STATES)}

{tables.editable_facts()}

```mermaid
{tables.state_diagram(REQUEST_STATES)}
```

## Elements

{tables.state_table(ELEMENT_STATES)}

```mermaid
{tables.state_diagram(ELEMENT_STATES)}
```

## Element jobs

A row may have several jobs in the pool, one after the other.

{tables.state_table(ELEMENT_JOB_STATES)}

```mermaid
{tables.state_diagram(ELEMENT_JOB_STATES)}
```
"""


def hand_over() -> str:
    return f"""\
{MADE.format(source="core/handover.py and core/pilots/handover.py")}

# The hand-over

Control of a job passes from the pool to a pilot by messages that may be lost, doubled, delayed or reordered. Each is
decided by this table from the *custody* of the job (who has it), the *message*, and its *epoch* beside the newest one
given. For a finish it also counts whether its content equals that of the finish taken before. The decision is
saved in the same transaction. *Superseded* means: nothing was changed, stop that work. A job is never lost, and at
most one result of it is applied; two tries at it may overlap only where a pilot died uncleanly or was cut off.

{tables.hand_over_of_jobs()}

## A pilot and its batch system

A batch system sends no messages, so a director looks. It looks its pilots up by their *stamp*, the name that stands in
the pilot's row before anything is submitted. *Absent* means that a complete listing does not have the stamp;
*still-absent*, that two of them do not, a settle time apart, and that nothing contradicted meanwhile: no listing, not
the pilot itself, and no accounting that says it runs. If a listing has none of a CE's batch jobs, a pilot
that calls home since shows that it proves no absence. *Held* means that the batch system does not start it. A query
that failed or gave a part is *unknown*, and moves nothing. Where a batch system cannot hold a job, as the local CE, an
adopted submission is released.

{tables.hand_over_of_pilots()}

## Batch jobs that wait

Each native reason to wait has a class. A class with an action *cancel* has a deadline, from the first listing that
shows it; then the batch jobs are cancelled, their CE pauses, and the failure counts for `max_failures`.
`pilotage ce list` tells the reason, how long pilots wait and the deadline. A batch job that is still held after
{MOST_RELEASES} releases without effect is cancelled too.

{tables.classes_of_waits()}

Reasons of Slurm. Other limits of accounting, `QOS…` and `Assoc…`, are *policy*, or *impossible* if they are about one
job. Any other word is *unknown*.

{tables.reasons_of_slurm()}

Words of Grid Engine's scheduler. Each is about one queue, so the best class counts. A job in the state `Eqw` is in
*error*, and a held one waits for a *user*. Any other sentence is *unknown*.

{tables.sentences_of_grid_engine()}
"""


def the_policy() -> str:
    policy.parse(EXAMPLE)
    return f"""\
{MADE.format(source="core/policy")}

# The policy

Users and groups, their rights and shares, sites and CEs: one TOML document, applied whole with
`pilotage policy apply FILE`, or refused with the line and the reason. Keys that are not listed here are refused.

```toml
{EXAMPLE}```

`*` stands for a name of your own. Of `limits` there may be up to 1,000. Texts have at most 200 characters,
ClassAd expressions 10,000, lists 1,000 entries, and the whole document 1,000,000 characters.

{keys_of_policy()}

## Correctors

The names that `correction.correctors` may have, each with an instance between the groups as an example.

{correctors_markdown()}
"""


def forwarding() -> str:
    of_types = {
        "local": ForwardTable(),
        **{name: options.forwarding for name, options in BATCH_SYSTEMS.items()},
    }
    return f"""\
{MADE.format(source="core/forwarding")}

# Forwarding of requirements

The residual of a queue's requirements at a CE becomes *flags*: native arguments of its batch system. A forward table
has one rule for each attribute of hosts that the batch system can say. `[ces.NAME.forward]` of the policy adds
rules and replaces them:

```toml
[ces.farm.forward]
GlueHostBenchmarkSI00 = "feature si00_{{}}"   # nodes of Slurm have features such as si00_600
GlueHostOperatingSystemName = "none"        # never forwarded
```

Flags accept every known host on which the residual is true. They refuse all other known hosts, except where a part
of the residual is *unmapped*: no flag says it. `pilotage ce jobs` shows this part, and the match on the node's own
offer decides it. Requirements that no known host satisfies lead to no submission, and `why` has the reason.

An attribute with a rule that some host has is known: hosts without a value do not have it.

`residual = "explicit"` makes flags of `HostRequirements` (also written `CERequirements`) alone.
`host_selection = "match"` passes names of hosts in place of restrictions, up to 2,000 names.

The wall time of a pilot is `wall` of its CE, not the wall time of one job. Pilots of one identity are
interchangeable, and each runs several jobs. So bounds on the CPU time of a queue are decided by the CE's facts, and
never tighten a time limit.

`forward_hook` names a program of the site on the server's machine. It runs without a shell and without arguments,
and must end within 10 s. Its answer is kept for submissions with equal variables. It prints further native
arguments, one a line, as `OPTION=VALUE` or `OPTION VALUE`; lines that begin with `#` are left out. If the hook fails,
hangs or prints any other line, nothing is submitted. `pilotage ce list` has the reason, and other CEs go on.

{forwarding_markdown(of_types)}"""


def slurm_commands() -> str:
    return f"""\
{MADE.format(source="cli/slurm")}

# Slurm's commands

`pilotage slurm-commands DIR` writes them ([how-to](../how-to/slurm-scripts.md)). Options that are not listed here are
refused, with exit code 1. Long options may be shortened.

{slurm_commands_markdown()}"""


def batch_systems() -> str:
    return f"""\
{MADE.format(source="core/policy/batch_systems and outside/batch")}

# Batch systems

Each `type` of a CE has an adapter. Two states tell how far it was tested:

- *live*: the tests start the batch system itself, lose its answers, kill its controller, and run jobs in it.
- *experimental*: nobody could install the batch system where Pilotage is made. The adapter follows the documentation
  and the sources of the system. The tests run it against a *double*: programs with the same names, options and
  answers, which start real processes. `pilotage ce add`, `pilotage ce show` and this page say so. Try such a CE with
  [`pilotage ce test`](cli.md), and send the file of `pilotage ce test --record`: it becomes a test.

{batch_systems_markdown()}

[Forwarding](forwarding.md) has the flags of each type, and [Information of CEs](ce-information.md) the facts about
its hosts. How-to pages: [Slurm](../how-to/slurm.md), [Grid Engine](../how-to/grid-engine.md),
[HTCondor](../how-to/htcondor.md), [ARC](../how-to/arc.md), [PBS and Torque](../how-to/pbs.md), [LSF](../how-to/lsf.md),
[machines without a batch system](../how-to/ssh.md#machines-without-a-batch-system).
"""


def command_line() -> str:
    return cli_markdown(build_command_line(SERVER_COMMANDS))


PARTS: dict[str, Callable[[], str]] = {"addresses": addresses, "verbs": verbs}


def with_parts(name: str) -> str:
    """The page as it stands, its generated parts made again."""
    text = (REFERENCE / name).read_text(encoding="utf-8")
    assert PART.search(text), f"{name} has no generated part"
    return PART.sub(lambda found: f"{found[1]}{PARTS[found[2]]()}\n{found[3]}", text)


def database_checks() -> str:
    return f"""\
{MADE.format(source="store/integrity")}

# Checks of the database

`pilotage db check` looks for rows that break a rule. Each rule holds after every commit of a server. So a wrong row is
a fault of Pilotage, of the database or of a change by hand. Each line of the command has the number of the wrong rows,
the first of their ids, and the meaning. The exit code is 1 if there is one. The
[how-to](../how-to/repair-the-database.md) says how to go on.

The last column: `yes` if `pilotage db check --repair` mends these rows. If it does not, the column says how a person
goes on.

{database_checks_markdown()}
"""


def doors_for_plug_ins() -> str:
    return f"""\
{MADE.format(source="main/plug_ins.py")}

# Doors for plug-ins

A distribution adds a plug-in by an entry point in one of these groups. [Write a plug-in](../how-to/write-a-plug-in.md)
says how. `pilotage plugins` lists the installed ones.

{doors_markdown()}
"""


PAGES: dict[str, Callable[[], str]] = {
    "states.md": states,
    "handover.md": hand_over,
    "policy.md": the_policy,
    "forwarding.md": forwarding,
    "slurm-commands.md": slurm_commands,
    "batch-systems.md": batch_systems,
    "cli.md": command_line,
    "job-description.md": job_description,
    "glue.md": attributes_of_ads,
    "requests.md": request_specification,
    "api.md": lambda: with_parts("api.md"),
    "client.md": lambda: with_parts("client.md"),
    "database-checks.md": database_checks,
    "plug-ins.md": doors_for_plug_ins,
}


def main() -> None:
    for name, page in PAGES.items():
        text, file = page(), REFERENCE / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            print(file.relative_to(REFERENCE.parents[1]))


if __name__ == "__main__":
    main()
