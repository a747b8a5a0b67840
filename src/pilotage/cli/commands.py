"""The table of commands: module, function and one-line help. Imports no command."""

from __future__ import annotations

from typing import NamedTuple


class LazyCommand(NamedTuple):
    """A command; its module is imported at the first call.

    `attribute` names a function that returns an exit code (None for 0), with parameters as in `cli/parser.py`.
    """

    module: str
    attribute: str
    help: str


def _here(module: str, attribute: str, text: str) -> LazyCommand:
    return LazyCommand(f"pilotage.cli.{module}", attribute, text)


COMMANDS: dict[str, LazyCommand] = {
    "submit": _here("submit", "submit", "Submit jobs: a JDL, YAML or JSON file, or a command after --"),
    "status": _here("status", "status", "Show jobs and their states"),
    "why": _here("why", "why", "Explain why a job or a task queue waits"),
    "match-ce": _here(
        "matchmaking.match_ce", "match_ce", "Match a job with each CE, and tell why not, without submitting"
    ),
    "wait": _here("wait", "wait", "Wait until jobs have ended"),
    "output": _here("output", "output", "Download the outputs of jobs"),
    "logs": _here("logs", "logs", "Show the standard output or error of a job; -f follows it"),
    "kill": _here("actions", "kill", "Kill waiting or running jobs"),
    "reschedule": _here(
        "actions", "reschedule", "Queue failed or killed jobs again, with the files sent before"
    ),
    "rerun": _here("rerun", "rerun", "Submit ended jobs again as new jobs, with the current files"),
    "hold": _here("actions", "hold", "Keep waiting or blocked jobs from running"),
    "release": _here("actions", "release", "Let held jobs run"),
    "priority": _here("actions", "priority", "Change the priority of jobs among all jobs of their owner"),
    "delete": _here("actions", "delete", "Delete jobs and their outputs"),
    "submission list": _here(
        "submissions", "list_submissions", "List submissions and how far they have come"
    ),
    "submission show": _here("submissions", "show", "Show the progress and the failures of a submission"),
    "submission kill": _here("submissions", "kill", "Kill the jobs of a submission"),
    "submission hold": _here("submissions", "hold", "Hold the jobs of a submission that have not started"),
    "submission release": _here("submissions", "release", "Let the held jobs of a submission run"),
    "submission priority": _here(
        "submissions", "priority", "Change the priority of the jobs of a submission"
    ),
    "submission parallel": _here(
        "submissions", "parallel", "Change how many jobs of a submission run at once"
    ),
    "request submit": _here("requests.submit", "submit", "Submit requests: data sets to process, or events"),
    "request list": _here("requests.lists", "list_requests", "List requests and how far they have come"),
    "request show": _here("requests.show", "show", "Show the elements, jobs, sites and errors of a request"),
    "request why": _here("request_why", "why_request", "Explain why a request is not further"),
    "request elements": _here(
        "requests.lists", "elements", "List the elements of a request, also stuck ones"
    ),
    "request history": _here("requests.lists", "history", "Show who changed a request, when and why"),
    "request wait": _here("requests.wait", "wait", "Wait until requests have ended"),
    "request approve": _here("requests.verbs", "approve", "Approve new requests (production managers)"),
    "request reject": _here("requests.verbs", "reject", "Refuse requests (production managers)"),
    "request assign": _here(
        "requests.verbs", "assign", "Give requests to a team of agents (production managers)"
    ),
    "request priority": _here("requests.verbs", "priority", "Change the priority of a request"),
    "request sites": _here("requests.verbs", "sites", "Change where requests may run"),
    "request pause": _here("requests.verbs", "pause", "Hold the further work of requests back"),
    "request resume": _here("requests.verbs", "resume", "Let paused requests go on"),
    "request abort": _here("requests.verbs", "abort", "End requests and cancel their work"),
    "request force-complete": _here(
        "requests.verbs", "force_complete", "End requests early; finished work counts"
    ),
    "request clone": _here("requests.verbs", "clone", "Submit a request again as a new one"),
    "request resubmit": _here("requests.verbs", "resubmit", "Make the failed jobs of a request again"),
    "request close-out": _here("requests.verbs", "close_out", "Accept the results of completed requests"),
    "request announce": _here("requests.verbs", "announce", "Tell that accepted results are there"),
    "request archive": _here("requests.verbs", "archive", "Put ended requests into the archive"),
    "job ad": _here("matchmaking.job_ad", "job_ad", "Print the ad of a job, as CEs see it"),
    "queue list": _here("lists", "queues", "List the task queues: waiting jobs with equal requirements"),
    "queue history": _here("intervals", "queue_history", "Show why jobs waited over time"),
    "pilot list": _here("lists", "pilots", "List the pilots"),
    "pilot show": _here("pilots.show", "show", "Show one pilot, and why it ended"),
    "pilot logs": _here("pilots.logs", "logs", "Show the output of a pilot itself (administrators)"),
    "pilot kill": _here("pilots.kill", "kill", "End pilots; their jobs wait again (administrators)"),
    "site list": _here("sites", "list_sites", "List the sites: their state, pilots and jobs"),
    "site show": _here("sites", "show", "Show one site, and who set its state, when and why"),
    "site import": _here(
        "site_import", "import_sites", "Add sites and take them down, by documents of GOCDB or CRIC"
    ),
    "site drain": _here("sites", "drain", "Send no new work to a site (administrators)"),
    "site down": _here("sites", "down", "Let no job start at a site (administrators)"),
    "site enable": _here("sites", "enable", "Make a site normal again (administrators)"),
    "agent list": _here("agents", "list_agents", "List the agents, which split requests into jobs"),
    "agent show": _here("agents", "show", "Show one agent: its lease, elements and jobs"),
    "agent drain": _here("agents", "drain", "Let an agent take no more work"),
    "agent enable": _here("agents", "enable", "Let a drained agent take work again"),
    "agent remove": _here("agents", "remove", "End an agent at once; its elements go back to the queue"),
    "ban": _here("bans", "ban", "Ban a user from a site, and kill their running jobs there (administrators)"),
    "ban list": _here("bans", "list_bans", "List the bans of users: where, by whom, why and until when"),
    "unban": _here("bans", "unban", "End the ban of a user (administrators)"),
    "trace": _here("trace", "trace", "Tell whose jobs ran in a batch job or on a node (administrators)"),
    "ce list": _here("ces.show", "list_ces", "List the CEs, and why no pilots are submitted to one"),
    "ce show": _here("ces.show", "show", "Explain the state of a CE and its last failures"),
    "ce jobs": _here("ces.jobs", "jobs", "List the batch jobs of a CE's pilots (administrators)"),
    "ce ad": _here(
        "matchmaking.ce_ad", "ce_ad", "Print the ad of a CE as it is matched, or check one in a file"
    ),
    "ce enable": _here("ces.show", "enable", "Submit pilots to a CE again (administrators)"),
    "ce disable": _here("ces.show", "disable", "Submit no more pilots to a CE (administrators)"),
    "ce test": _here("ces.probe", "probe", "Submit a probe to a CE and report each step (administrators)"),
    "ce add": _here("ces.add", "add", "Add a batch system or this machine to the policy as a CE"),
    "catalogue list": _here(
        "catalogues", "list_catalogues", "List the outside catalogues, and whether they answer"
    ),
    "catalogue show": _here("catalogues", "show", "Show an outside catalogue and its data sets"),
    "catalogue test": _here("catalogues", "test", "Log in to an outside catalogue now"),
    "dataset add": _here("datasets.add", "add", "Register files as a data set, or add files to one"),
    "issuer list": _here("issuers", "list_issuers", "List the issuers at which people can sign in"),
    "issuer test": _here("issuers", "test", "Let the server read the keys of an issuer now"),
    "storage list": _here("storage", "list_storage", "List the storage places that are no folders"),
    "storage test": _here("storage", "test", "Ask an S3 service now whether it serves"),
    "storage unclaimed": _here("storage", "unclaimed", "List outputs of refused attempts, or remove them"),
    "dataset follow": _here("catalogues", "follow", "Copy a data set from an outside catalogue"),
    "dataset list": _here("datasets.show", "list_datasets", "List the data sets"),
    "dataset show": _here("datasets.show", "show", "Show a data set, where it is, and its blocks"),
    "dataset replicas": _here(
        "datasets.show", "replicas", "Show or change the sites where a data set's blocks are"
    ),
    "dataset files": _here("datasets.files", "files", "Print the paths of a data set's files"),
    "dataset close": _here("datasets.show", "close", "Close a data set: no more files will come"),
    "dataset remove": _here("datasets.show", "remove", "Remove a data set from the catalogue"),
    "cost": _here("cost", "cost", "Show where the core-hours of pilots went"),
    "audit": _here("audit", "audit", "List the changes that people made through the API (administrators)"),
    "report": _here(
        "report.command", "report", "Report on a submission, a request or a month; --html writes one file"
    ),
    "director": _here(
        "director", "director", "Explain how many pilots are submitted, and where (administrators)"
    ),
    "share list": _here("shares", "share_list", "Show shares, usage and priorities of groups and owners"),
    "share history": _here("intervals", "share_history", "Show shares, usage and corrections over time"),
    "fairness check": _here("shares", "fairness", "Compare usage with the shares"),
    "accounting export": _here(
        "accounting", "export", "Export usage as CSV or JSON, or as records of APEL or AUDITOR"
    ),
    "policy show": _here("policy.versions", "show", "Print the policy in force"),
    "policy init": _here("policy.files", "init", "Write an annotated example policy"),
    "policy check": _here("policy.versions", "check", "Check a policy file without applying it"),
    "policy diff": _here("policy.diff", "diff", "Compare versions of the policy, or files"),
    "policy history": _here("policy.versions", "history", "List the versions of the policy"),
    "policy rollback": _here(
        "policy.versions", "rollback", "Put an earlier version of the policy into force again"
    ),
    "policy preset": _here("policy.files", "preset", "Print rules by name, or a policy file with them"),
    "policy import": _here("policy.files", "import_cfg", "Convert a DIRAC configuration to a policy"),
    "server duties": _here("duties", "duties", "List the rows that duties of the server cannot process"),
    "dirac-commands": _here(
        "command_folder", "dirac_commands", "Write the commands of DIRAC for jobs into a folder for PATH"
    ),
    "slurm-commands": _here(
        "command_folder", "slurm_commands", "Write the commands of Slurm for jobs into a folder for PATH"
    ),
    "login": _here("login", "login", "Log in to a server on another machine"),
    "logout": _here("login", "logout", "Remove the address and the token of a login"),
    "token create": _here("token", "create", "Create a token for a user (administrators)"),
    "token show": _here("token", "show", "Show the user and expiry of the current token"),
    "token list": _here("token", "list_tokens", "List tokens that administrators have made"),
    "token revoke": _here("token", "revoke", "Revoke tokens of users and pilots"),
    "token rotate-key": _here("token", "rotate_key", "Sign tokens with a new key (administrators)"),
    "down": _here("down", "down", "Stop the server"),
    "web": _here("web", "web", "Open the web pages of the server in a browser"),
    "whoami": _here("identity", "whoami", "Show the user, group and rights of your token"),
    "version": _here("identity", "version", "Print the versions of the client and the server"),
}

GROUPS: dict[str, str] = {
    "db": "Back up, restore, check and upgrade the database",
    "home": "Make a copied home a home of its own",
    "submission": "Show and change submissions as wholes",
    "request": "Process a data set or generate events, step by step",
    "job": "Print the ad of a job",
    "queue": "List the task queues, and show why jobs waited",
    "pilot": "List, show and end pilots",
    "site": "List, drain and enable sites",
    "ce": "Add a computing element (CE), where pilots start",
    "catalogue": "Show the outside catalogues, such as Rucio",
    "issuer": "Show the OpenID Connect issuers that the policy trusts",
    "storage": "Show the storage places that are no folders, such as S3",
    "dataset": "Register data sets and show where their files are",
    "share": "Show shares, usage and priorities of groups and owners",
    "fairness": "Compare usage with the shares",
    "accounting": "Export usage by month, site, group and owner",
    "policy": "Show, check and change users, groups, shares, sites and limits",
    "twin": "Try policies on the jobs of a trace, in virtual time",
    "server": "Manage this server",
    "server certificate": "Show and replace the server's certificate",
    "token": "Create, list and revoke tokens",
}
