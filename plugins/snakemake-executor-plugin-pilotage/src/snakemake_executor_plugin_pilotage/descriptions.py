"""Job descriptions of Pilotage from jobs of Snakemake."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

from pilotage.core.errors import InvalidInput

PREFIX = "pilotage_"
LONGEST_LABEL = 255
MEMORY_OF_SNAKEMAKE = 200
"""MB. Each job runs Snakemake itself on its node, in addition to the command of the rule."""
_OWN = frozenset(
    {
        "executable",
        "arguments",
        "environment",
        "input_sandbox",
        "folder",
        "folder_mark",
        "umask",
        "stdout_file",
        "stderr_file",
        "open_mode",
        "std_output",
        "std_error",
        "job_name",
        "job_group",
    }
)
"""Fields that the plug-in sets itself."""


def label_of(text: str) -> str:
    """The text, or its end with a digest if it is too long for a label."""
    if len(text) <= LONGEST_LABEL:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{digest}...{text[-(LONGEST_LABEL - 15) :]}"


def name_of(job: JobExecutorInterface) -> str:
    """Rule and wildcards, or a group's rules and a digest of its outputs: the same in each run."""
    if not job.is_group():
        return label_of(f"{job.name} {job.format_wildcards('{wildcards}')}".strip())
    outputs = "\n".join(sorted(map(str, job.output)))
    return label_of(f"{'+'.join(sorted(job.rules))} {hashlib.sha256(outputs.encode()).hexdigest()[:8]}")


def requests_of(threads: int, resources: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job description that threads and resources of a rule ask for.

    A resource `pilotage_FIELD` is the field FIELD itself. Raises InvalidInput for a field that the plug-in sets.
    """
    fields: dict[str, Any] = {"processors": threads}
    if memory := _number(resources, "mem_mib"):
        fields["memory"] = memory + MEMORY_OF_SNAKEMAKE
    if disk := _number(resources, "disk_mib"):
        fields["disk"] = disk
    if minutes := _number(resources, "runtime"):
        fields["wall_time"] = minutes * 60
    if _number(resources, "gpu"):
        fields["tags"] = "GPU"
    for resource, value in resources.items():
        if resource.startswith(PREFIX):
            fields[_field_of(resource)] = value
    return fields


def _number(resources: Mapping[str, Any], name: str) -> int:
    value = resources.get(name, 0)
    return value if isinstance(value, int) else 0


def _field_of(resource: str) -> str:
    field = resource.removeprefix(PREFIX)
    if field in _OWN:
        raise InvalidInput(f"the resource {resource} is refused: the plug-in sets {field} itself")
    return field
