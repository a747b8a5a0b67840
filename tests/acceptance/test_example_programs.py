"""The programs of the examples, as jobs of a request run them: parts add up to the whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.deadlines import PATIENCE

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_job(folder: Path, program: str, files: Sequence[Path] = (), **variables: str) -> Any:
    """Run a program of the examples in a folder of its own; returns the only JSON file that it writes."""
    folder.mkdir()
    entries = [{"name": f"{path.parent.name}/{path.name}", "path": str(path)} for path in files]
    order = folder.parent / f"{folder.name}.order"
    order.write_text(json.dumps({"files": entries}))
    environment = {**os.environ, "PILOTAGE_INPUT": str(order), **variables}
    command = [sys.executable, "-I", str(EXAMPLES / program)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    [written] = folder.glob("*.json")
    return json.loads(written.read_text())


def test_the_quickstarts_parts_add_up_to_the_whole(tmp_path: Path) -> None:
    library = Path(json.__file__).parent
    files = sorted(library.glob("*.py"))
    whole = run_job(tmp_path / "whole", "quickstart/analyse.py", files)
    parts = [
        run_job(tmp_path / f"part{place}", "quickstart/analyse.py", files[place::2]) for place in range(2)
    ]
    assert all(part["packages"][0]["lines"] < whole["packages"][0]["lines"] for part in parts)
    results = [tmp_path / f"part{place}" / "result.json" for place in range(2)]
    merged = run_job(tmp_path / "merged", "quickstart/combine.py", results)
    assert merged["packages"] == whole["packages"]
    assert merged["jobs"] == 2
    [package] = merged["packages"]
    assert package["lines"] == sum(path.read_bytes().count(b"\n") for path in files)


def test_the_manifest_counts_every_line_of_the_library(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "quickstart/manifest.py")], capture_output=True, text=True, check=True
    )
    manifest = json.loads(done.stdout)
    assert Path(manifest["prefix"], "json/decoder.py").is_file()
    blocks = {block["name"]: block["files"] for block in manifest["blocks"]}
    [decoder] = [file for file in blocks["json"] if file["name"] == "json/decoder.py"]
    path = Path(manifest["prefix"], "json/decoder.py")
    assert (decoder["events"], decoder["size"]) == (path.read_bytes().count(b"\n"), path.stat().st_size)
    assert "test" not in blocks


def test_histograms_of_jobs_are_added_and_seeds_differ(tmp_path: Path) -> None:
    """`-I` hides an installed generator of the user: this is the toy, unless PYTHIA is in the tests' environment."""
    results = []
    for seed in (1, 2):
        folder = tmp_path / f"job{seed}"
        numbers = {
            "PILOTAGE_EVENTS": "300",
            "PILOTAGE_SEED": str(seed),
            "PILOTAGE_FIRST_EVENT": str(300 * seed),
        }
        results.append(run_job(folder, "montecarlo/generate.py", (), **numbers))
    assert results[0]["histograms"] != results[1]["histograms"]
    files = [tmp_path / f"job{seed}" / "histograms.json" for seed in (1, 2)]
    merged = run_job(tmp_path / "sum", "montecarlo/add_histograms.py", files)
    assert (merged["events"], merged["jobs"]) == (600, 2)
    for name, histogram in merged["histograms"].items():
        parts = [result["histograms"][name] for result in results]
        assert histogram["counts"] == [
            sum(pair) for pair in zip(*(part["counts"] for part in parts), strict=True)
        ]
        assert sum(histogram["counts"]) + histogram["outside"] == 600
