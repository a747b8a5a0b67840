"""Texts of users that try to be more than text, in each place of a pool where users write them."""

from __future__ import annotations

import json
from urllib.parse import urlencode

from pilotage.wire.jobs import Selection
from tests.instance import Instance, until

MARKUP = '<img src=x onerror="window.ran=1">'
SCRIPT = "</textarea></bdi><script>window.ran=1</script>"
HOSTILE = (
    f"{MARKUP}{SCRIPT}\u202egnp.exe\u2066 \U0001f468\u200d\U0001f469\u200d\U0001f467 '\"&amp; {{{{7*7}}}}"
)
WIDE = MARKUP + "W" * (255 - len(MARKUP))
"""The longest name, without a place to break."""
LONG = HOSTILE + "W" * 4096
RUN = 'printf "%s\\n" "$1"; printf "%s\\n" "$2" >&2; echo x > "$3"; exit 3'


def add_hostile_texts(pool: Instance, policy: str) -> list[str]:
    """Write hostile texts wherever users can; the addresses of pages that show them, beside the usual ones."""
    client = pool.client()
    user, group = json.dumps(HOSTILE, ensure_ascii=False), json.dumps(f"group {HOSTILE}", ensure_ascii=False)
    table = f'[groups.{group}]\n[users.{user}]\ngroups = [{group}, "others"]\n'
    client.apply_policy(policy + table, reason=HOSTILE)
    writer = pool.client(HOSTILE)
    failed = writer.submit(
        {
            "executable": "sh",
            "arguments": ["-c", RUN, "sh", LONG, HOSTILE, MARKUP],
            "environment": {"TEXT": LONG},
            "job_name": HOSTILE,
            "job_group": WIDE,
            "output_sandbox": ["*"],
        }
    )
    waits = writer.submit({"executable": "true", "job_name": WIDE, "tags": [HOSTILE], "job_group": HOSTILE})
    killed = writer.submit({"executable": "true", "hold": True, "job_name": HOSTILE}).first
    pool.reaches(failed.first, "Failed")
    writer.kill(Selection(ids=[killed]), reason=HOSTILE)
    until(lambda: writer.why(waits.first).openings, what="the reason of a job")
    client.ban_user(user=HOSTILE, site="cellar", reason=HOSTILE)
    client.disable_ce("farm", reason=HOSTILE)
    client.set_site_state(site="cellar", state="drain", reason=HOSTILE)
    request = client.submit_request(
        {
            "name": "x",
            "events": 10,
            "program": {"executable": "true"},
            "splitting": {"algorithm": "EventBased", "events_per_job": 20},
            "team": HOSTILE,
        }
    ).request.id
    queue = client.job(waits.first).job.queue
    of_name, of_owner = urlencode({"name": HOSTILE}), urlencode({"owner": HOSTILE})
    change = urlencode({"attribute": "tags", "value": HOSTILE})
    lift = urlencode({"user": HOSTILE, "site": "cellar"})
    return [
        *(f"jobs/{job}" for job in (failed.first, waits.first, killed)),
        f"jobs/{failed.first}?stream=stderr",
        f"jobs/{waits.first}/change?{change}",
        f"submissions/{failed.submission}",
        f"jobs?{of_owner}",
        f"jobs/all/kill?{of_owner}",
        f"jobs?{of_name}",
        f"jobs?{urlencode({'state': HOSTILE})}",
        f"jobs?{urlencode({'ids': HOSTILE})}",
        f"jobs/all/{urlencode({'': HOSTILE})[1:].replace('%2F', '')}?{of_owner}",
        f"requests/{request}",
        f"queues/{queue}",
        f"shares/group?{urlencode({'name': f'group {HOSTILE}', 'period': 'hour'})}",
        f"shares/group?{urlencode({'name': LONG, 'period': 'hour'})}",
        f"ces/one?{urlencode({'name': HOSTILE})}",
        f"datasets/one?{urlencode({'name': HOSTILE})}",
        f"administration/lift?{lift}",
        f"signin?{urlencode({'next': HOSTILE})}",
        f"signin-at?{urlencode({'issuer': HOSTILE})}",
        f"signin-back?{urlencode({'state': HOSTILE, 'error': HOSTILE, 'error_description': HOSTILE})}",
    ]
