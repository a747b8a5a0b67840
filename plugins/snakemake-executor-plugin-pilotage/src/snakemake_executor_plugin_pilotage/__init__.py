"""A Snakemake executor: each job of a workflow is a job of Pilotage. See docs/how-to/snakemake.md."""

from __future__ import annotations

from snakemake_executor_plugin_pilotage.executor import Executor
from snakemake_executor_plugin_pilotage.settings import ExecutorSettings, common_settings

__all__ = ["Executor", "ExecutorSettings", "common_settings"]
