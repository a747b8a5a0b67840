"""Removes private words from the text of a transcript, by their kind; equal words stay equal. Pure.

Accounts, hosts with their domains, addresses of networks and of mail, paths, long random words, variables of jobs, and
jobs of other accounts.
"""

from __future__ import annotations

import re
from collections.abc import Callable

ACCOUNT = "me"

_MAIL = re.compile(r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}\b")
_HOST = re.compile(
    r"\b(?=[0-9-]*[A-Za-z])[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9-]+)+\.[A-Za-z]{2,}\b"
)
_DONE = re.compile(r"machine[0-9]+\.example\.org")
_ADDRESS = re.compile(
    r"(?<![\w.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![\w.])|(?<![\w:])(?:[0-9a-fA-F]{1,4}:){3,7}[0-9a-fA-F]{1,4}"
)
_PATH = re.compile(
    r"(?<![\w.:@<])/[A-Za-z0-9_.@+~-]+(?:/[A-Za-z0-9_.@+~-]+)+|(?<=:)/[\w.@+~-]+(?:/[\w.@+~-]+)+"
)
_PUBLIC_PATH = re.compile(r"/(?:bin|usr|opt|path)/|/dev/null")
_RANDOM = re.compile(r"(?<![\w@])(?=[\w+/=-]*[0-9])(?=[\w+/=-]*[A-Za-z])[\w+/-]{32,}={0,2}(?:\.[\w+/-]{8,})*")
_VARIABLES = re.compile(r"^(    Variable_List = )(.*(?:\n\t.*)*)", re.MULTILINE)
_ARGUMENTS = re.compile(
    r"^    (?:Submit_arguments|submit_args|Shell_Path_List|mtime) = .*(?:\n\t.*)*\n?", re.MULTILINE
)
_XML = re.compile(
    r"<JB_env_list>.*?</JB_env_list>|(?<=<JB_owner>)[^<]*|(?<=<JB_group>)[^<]*|(?<=<JB_account>)[^<]*",
    re.DOTALL,
)
_SECRET = re.compile(
    r"\b(\w*(?:TOKEN|PASSW|SECRET|CREDENTIAL|COOKIE|API_?KEY)\w*\s*[=:]\s*)[^\s,;\"']+", re.IGNORECASE
)


class Redactor:
    """The words that it has replaced, so that each stands for one word throughout a transcript."""

    def __init__(self, account: str, hosts: tuple[str, ...] = ()) -> None:
        """`account`: of the server. `hosts`: names that are hosts although they have no domain."""
        self._account = account
        self._replaced: dict[str, dict[str, str]] = {}
        for host in hosts:
            self._word("machine", host.split(".", 1)[0])

    def __call__(self, text: str) -> str:
        """The text without private words."""
        text = _own_jobs(text, self._account)
        text = _VARIABLES.sub(_own_variables, text)
        text = _ARGUMENTS.sub("", text)
        text = _XML.sub("", text)
        text = _SECRET.sub(r"\1SECRET", text)
        text = re.sub(rf"(?<![\w.-]){re.escape(self._account)}(?![\w-])", ACCOUNT, text)
        text = _MAIL.sub(self._mail, text)
        text = _HOST.sub(self._host, text)
        for label, name in self._replaced.get("machine", {}).items():
            text = re.sub(rf"(?<![\w.-]){re.escape(label)}(?![\w-])", name, text)
        text = _ADDRESS.sub(self._of("192.0.2.{}"), text)
        text = _PATH.sub(self._path, text)
        return _RANDOM.sub(self._of("SECRET{}"), text)

    def _word(self, kind: str, word: str) -> str:
        known = self._replaced.setdefault(kind, {})
        return known.setdefault(word, f"{kind}{len(known) + 1}")

    def _of(self, pattern: str) -> Callable[[re.Match[str]], str]:
        return lambda match: pattern.format(self._word(pattern, match[0]).removeprefix(pattern))

    def _host(self, match: re.Match[str]) -> str:
        return match[0] if _DONE.fullmatch(match[0]) else f"{self._host_name(match[0])}.example.org"

    def _host_name(self, host: str) -> str:
        return self._word("machine", host.split(".", 1)[0])

    def _mail(self, match: re.Match[str]) -> str:
        """An address of mail. Batch systems write the owner of a job, ACCOUNT@HOST, in the same way."""
        name, _, host = match[0].partition("@")
        who = ACCOUNT if name == ACCOUNT else self._word("person", name)
        return f"{who}@{self._host_name(host)}.example.org"

    def _path(self, match: re.Match[str]) -> str:
        if _PUBLIC_PATH.match(match[0]):
            return match[0]
        return "/path/" + self._word("folder", match[0])


def _own_variables(match: re.Match[str]) -> str:
    words = re.split(r"(?<!\\),", match[2].replace("\n\t", ""))
    return match[1] + ",".join(word for word in words if word.startswith("PILOTAGE_"))


def _own_jobs(text: str, account: str) -> str:
    """A listing of PBS without the jobs of other accounts."""
    if not text.startswith("Job Id:"):
        return text
    records = re.split(r"(?m)^(?=Job Id:)", text)
    owner = re.compile(r"^    Job_Owner = (.*?)@", re.MULTILINE)
    return "".join(
        record for record in records if (owned := owner.search(record)) is None or owned[1] == account
    )
