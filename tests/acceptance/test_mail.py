"""Mail of a real server about jobs of real pilots, as `submit` and `sbatch` ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.smtp_server import running_smtp
from tests.instance import running, until

pytestmark = pytest.mark.slow

MAIL = """
[mail]
server = "{server}"
sender = "pool@example.org"
recipients = ["@example.org"]
"""


def test_the_end_and_the_failure_of_submissions_are_told_by_mail(tmp_path: Path) -> None:
    options = ("--mail-type", "end,fail", "--mail-user", "ada@example.org")
    with running_smtp() as smtp, running(tmp_path) as instance:
        early = instance.cli("submit", *options, "--", "true")
        assert "no mail will be sent: mail.server of the policy is empty" in early.stderr
        instance.policy += MAIL.format(server=smtp.address)
        instance.apply()
        done = instance.cli("submit", *options, "--name", "good", "--", "true")
        assert (done.returncode, done.stderr) == (0, "")
        forbidden = instance.cli("submit", *options[:3], "eve@example.com", "--", "true")
        assert "no mail will be sent to eve@example.com" in forbidden.stderr
        instance.cli("submit", *options, "--name", "bad", "--", "sh", "-c", "exit 3")

        def lines() -> set[str]:
            told = [f"{mail['Subject']}\n{mail.get_payload()}" for mail in smtp.taken]
            return {line for text in told for line in text.splitlines() if line.startswith("submission")}

        expected = {"submission 2 (good): 1 job ended: 1 Done", "submission 4 (bad): 1 job ended: 1 Failed"}
        until(lambda: lines() >= expected, what="mail about both submissions")
        assert {line for line in lines() if "ended" in line} == expected
        assert {str(mail["To"]) for mail in smtp.taken} == {"ada@example.org"}
