"""The page docs/reference/slurm-commands.md: every option of Slurm's commands, made from their tables."""

from __future__ import annotations

from pilotage.cli.slurm.options import OptionTable, SlurmOption, Treatment
from pilotage.cli.slurm.query_options import (
    SACCT_OPTIONS,
    SCANCEL_OPTIONS,
    SCONTROL_OPTIONS,
    SINFO_OPTIONS,
    SQUEUE_OPTIONS,
)
from pilotage.cli.slurm.sacct_columns import COLUMNS as SACCT_COLUMNS
from pilotage.cli.slurm.sbatch_options import SBATCH_OPTIONS
from pilotage.cli.slurm.scontrol import SUBCOMMANDS
from pilotage.cli.slurm.squeue_columns import COLUMNS as SQUEUE_COLUMNS
from pilotage.cli.slurm.srun_options import SRUN_OPTIONS

_TABLES = (
    SBATCH_OPTIONS,
    SQUEUE_OPTIONS,
    SACCT_OPTIONS,
    SCANCEL_OPTIONS,
    SCONTROL_OPTIONS,
    SINFO_OPTIONS,
    SRUN_OPTIONS,
)


def slurm_commands_markdown() -> str:
    """The tables of the page."""
    parts: list[str] = []
    for table in _TABLES:
        parts += [f"## {table.command}", "", "| option | | meaning, or reason |", "|---|---|---|"]
        for treatment in Treatment:
            parts += [_row(option, table) for option in table.options if option.treatment is treatment]
        parts.append("")
        if table is SQUEUE_OPTIONS:
            parts += ["| column | letter |", "|---|---|"]
            letters = {
                column.name: f"`%{column.letter}`" if column.letter else "" for column in SQUEUE_COLUMNS
            }
            parts += [f"| `{name}` | {letter} |" for name, letter in letters.items()] + [""]
        if table is SACCT_OPTIONS:
            parts += ["| column |", "|---|", *(f"| `{column.title}` |" for column in SACCT_COLUMNS), ""]
        if table is SCONTROL_OPTIONS:
            parts += ["| command | |", "|---|---|"]
            parts += [f"| `{name}` | {text} |" for name, text in SUBCOMMANDS.items()] + [""]
    return "\n".join(parts)


def _row(option: SlurmOption, table: OptionTable) -> str:
    short = f", `-{option.short}`" if option.short else ""
    text = option.text.replace("|", "\\|")
    variable = f" Also `{option.variable}`." if option.variable and table is SBATCH_OPTIONS else ""
    return f"| `{option.shown}`{short} | {option.treatment} | {text}{'.' if variable else ''}{variable} |"
