"""The suite that Snakemake has for all of its executors, on the server of PILOTAGE_HOME or of ~/.pilotage."""

from __future__ import annotations

import snakemake.common.tests
from snakemake_executor_plugin_pilotage import ExecutorSettings


class TestWorkflows(snakemake.common.tests.TestWorkflowsLocalStorageBase):
    __test__ = True

    def get_executor(self) -> str:
        return "pilotage"

    def get_executor_settings(self) -> ExecutorSettings:
        return ExecutorSettings()
