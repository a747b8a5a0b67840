"""Options of the executor on the command line of Snakemake: --pilotage-home and so on."""

from dataclasses import dataclass, field
from typing import Optional

from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

SOFTWARE = "PATH,LD_LIBRARY_PATH,LANG,VIRTUAL_ENV,CONDA_PREFIX,CONDA_DEFAULT_ENV,CONDA_EXE,MAMBA_EXE,MAMBA_ROOT_PREFIX"
"""Variables by which a job finds the software that is active in the shell of Snakemake."""


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """None: the default of Pilotage's own client."""

    home: Optional[str] = field(  # noqa: UP045  # Snakemake makes the option from this form
        default=None,
        metadata={"help": "Home folder of Pilotage (default: PILOTAGE_HOME, else ~/.pilotage)."},
    )
    server: Optional[str] = field(  # noqa: UP045  # Snakemake makes the option from this form
        default=None,
        metadata={"help": "Address of the server (default: PILOTAGE_SERVER, else that of the home folder)."},
    )
    group: Optional[str] = field(  # noqa: UP045  # Snakemake makes the option from this form
        default=None, metadata={"help": "Group to submit as (default: the group of the token)."}
    )
    export: Optional[str] = field(  # noqa: UP045  # Snakemake makes the option from this form
        default=None,
        metadata={
            "help": "Variables of the environment that jobs get, as for `pilotage submit --export`: NONE, ALL, or names "  # noqa: E501
            f"with commas between them (default: {SOFTWARE.replace(',', ', ')}, as far as they are set)."
        },
    )


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=True,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    pass_envvar_declarations_to_cmd=False,
    auto_deploy_default_storage_provider=False,
    pass_group_args=True,
)
