"""Labels of jobs, and what threads and resources ask for."""

from __future__ import annotations

import pytest
from snakemake_executor_plugin_pilotage.descriptions import LONGEST_LABEL, label_of, requests_of

from pilotage.core.errors import InvalidInput


def test_long_folders_have_short_labels() -> None:
    one, other = label_of("snakemake /" + "a" * 400), label_of("snakemake /b" + "a" * 400)
    assert len(one) == len(other) == LONGEST_LABEL
    assert one != other


def test_resources_are_fields() -> None:
    asked = {"mem_mb": 105, "mem_mib": 101, "disk_mib": 101, "runtime": 5, "gpu": 1, "pilotage_sites": "cern"}
    assert requests_of(2, {**asked, "tmpdir": "/tmp", "slurm_partition": "short"}) == {
        "processors": 2,
        "memory": 301,
        "disk": 101,
        "wall_time": 300,
        "tags": "GPU",
        "sites": "cern",
    }
    assert requests_of(1, {"mem_mib": "<TBD>"}) == {"processors": 1}


def test_fields_of_the_plug_in_are_refused() -> None:
    with pytest.raises(InvalidInput, match="pilotage_folder is refused: the plug-in sets folder itself"):
        requests_of(1, {"pilotage_folder": "/elsewhere"})
