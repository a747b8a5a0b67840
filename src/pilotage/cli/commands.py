"""The table of commands: where each lives, and one line about it. Nothing is imported for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LazyCommand:
    """A command whose module is imported when it is called.

    `attribute` is a function with Typer's annotations, which returns the exit code or None for 0; or a Typer app.
    """

    module: str
    attribute: str
    help: str


def _here(module: str, attribute: str, text: str) -> LazyCommand:
    return LazyCommand(f"pilotage.cli.{module}", attribute, text)


COMMANDS: dict[str, LazyCommand] = {
    "submit": _here("submit", "submit", "Submit jobs: a JDL, YAML or JSON file, or a command after --"),
    "status": _here("status", "status", "Show jobs and how far they are"),
    "why": _here("why", "why", "Tell why a job or a task queue waits, and what would help"),
    "wait": _here("wait", "wait", "Wait until jobs have ended"),
    "output": _here("output", "output", "Fetch the outputs of jobs"),
    "logs": _here("logs", "logs", "Show what a job prints, -f as it does"),
    "kill": _here("actions", "kill", "End jobs"),
    "reschedule": _here(
        "actions", "reschedule", "Send failed or killed jobs back to their queue, as they are"
    ),
    "rerun": _here("rerun", "rerun", "Submit jobs anew, with the files as they are now"),
    "delete": _here("actions", "delete", "Remove jobs and their outputs"),
    "queue list": _here("lists", "queues", "List the task queues: waiting jobs with equal needs"),
    "pilot list": _here("lists", "pilots", "List the pilots"),
    "site list": _here("lists", "sites", "List the sites"),
    "share list": _here(
        "shares", "share_list", "Show who is entitled to what, what was used, and the corrections"
    ),
    "fairness check": _here("shares", "fairness", "Compare what was used with what the shares give"),
    "accounting export": _here("shares", "export", "Export use by month, site, group and owner"),
    "policy show": _here("policy.versions", "show", "Print the policy in force"),
    "policy init": _here("policy.files", "init", "Write a policy to begin with"),
    "policy check": _here("policy.versions", "check", "Check a policy file without applying it"),
    "policy diff": _here("policy.diff", "diff", "Compare versions of the policy, or files"),
    "policy apply": _here("policy.versions", "apply", "Make a policy file the policy in force"),
    "policy history": _here("policy.versions", "history", "List the versions of the policy"),
    "policy rollback": _here("policy.versions", "rollback", "Apply an earlier version again"),
    "policy import": _here("policy.files", "import_cfg", "Make a policy of a DIRAC configuration"),
    "token create": _here("token", "create", "Make a token for a user (administrators)"),
    "token show": _here("token", "show", "Tell whose the token in use is and until when"),
    "down": _here("down", "down", "Stop the server"),
    "whoami": _here("identity", "whoami", "Tell who the server takes you for"),
    "version": _here("identity", "version", "Print the versions of this program and of the server"),
}

GROUPS: dict[str, str] = {
    "db": "The database: backup and restore",
    "queue": "Task queues",
    "pilot": "Pilots",
    "site": "Sites",
    "share": "Shares of groups and owners",
    "fairness": "Entitled against used",
    "accounting": "What was used",
    "policy": "Users, groups, shares, sites and limits: one document, applied whole",
    "token": "Tokens: who you are to the server",
}
