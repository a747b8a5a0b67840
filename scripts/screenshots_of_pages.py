"""Makes pictures of all pages, of a server with sample work: run by scripts/screenshots."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.browser import SIZES, browser, signed_in
from tests.instance import Instance, until
from tests.sample_work import POLICY, add_pages

FAILING = (
    "echo reading events; for n in 1 2 3; do echo event $n; done; echo 'cannot open calib.db' >&2; exit 3"
)


def sample_work(server: Instance) -> dict[str, str]:
    """Submit jobs that wait, run, fail and are done; the addresses of the pages that show them."""
    client = server.client()
    big = client.submit({"executable": "true", "job_name": "train", "memory": 64_000, "job_group": "models"})
    mixed = client.submit(
        {
            "executable": "sh",
            "arguments": ["-c", f"if [ %s -lt 3 ]; then {FAILING}; fi; echo done"],
            "job_name": "reconstruct_%s",
        },
        values=list(range(12)),
    )
    for number in range(12):
        server.reaches(mixed.first + number, "Done", "Failed")
    gpu = client.submit({"executable": "true", "tags": ["gpu"], "job_name": "fit"}, values=[1, 2, 3])
    runs = client.submit(
        {"executable": "sh", "arguments": ["-c", "echo started; sleep 600"], "job_name": "simulate"}
    )
    server.reaches(runs.first, "Running")
    until(lambda: client.why(gpu.first).openings, what="the reason of a job")
    of_the_pool = add_pages(server)
    client.submit({"executable": "sleep", "arguments": ["600"]}, values=list(range(12)))
    until(lambda: all(queue.reason for queue in client.queues()), what="the reasons of all queues")
    return {
        "work": "/",
        "submission": f"/submissions/{mixed.submission}",
        "waits": f"/jobs/{gpu.first}",
        "memory": f"/jobs/{big.first}",
        "runs": f"/jobs/{runs.first}",
        "failed": f"/jobs/{mixed.first}?stream=stderr",
        "change": f"/jobs/{gpu.first}/change?attribute=tags&value=gpu",
        "jobs": "/jobs?state=Failed",
        "kill": f"/jobs/all/kill?submission={mixed.submission}",
        "missing": "/jobs/999999",
        "health": "/health",
        **of_the_pool,
    }


def main(folder: Path, *wanted: str) -> None:
    """Make the pictures of all pages, or of those with the names in `wanted`."""
    folder.mkdir(parents=True, exist_ok=True)
    server = Instance(Path(tempfile.mkdtemp()), owners="any")
    server.policy += POLICY
    try:
        server.start()
        server.apply()
        pages, client = sample_work(server), server.client()
        with browser() as running:
            for scheme in ("light", "dark"):
                for size, (width, height) in SIZES.items():
                    with signed_in(
                        running,
                        client.url + client.sign_in_code().address,
                        color_scheme=scheme,
                        viewport={"width": width, "height": height},
                    ) as profile:
                        page = profile.new_page()
                        for name, address in pages.items():
                            if wanted and name not in wanted:
                                continue
                            page.goto(client.url + address)
                            page.screenshot(
                                path=folder / f"{name}-{size}-{scheme}.png", full_page=size != "wall"
                            )
                        profile.clear_cookies()
                        page.goto(f"{client.url}/signin")
                        page.screenshot(path=folder / f"signin-{size}-{scheme}.png")
    finally:
        server.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
