"""The suite that Snakemake has for all of its executors."""

from __future__ import annotations

import pytest
import snakemake.common.tests
from snakemake_executor_plugin_pilotage import ExecutorSettings


@pytest.mark.usefixtures("home")
class TestWorkflows(snakemake.common.tests.TestWorkflowsLocalStorageBase):
    __test__ = True

    def get_executor(self) -> str:
        return "pilotage"

    def get_executor_settings(self) -> ExecutorSettings:
        return ExecutorSettings()
