"""The class of presets: named rules that a policy can take as a whole."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from pilotage.core.policy import toml
from pilotage.core.policy.toml_edit import Path, Value, value_at, with_values, written
from pilotage.core.shares.correctors.wms_history import Form, HistoryInstance


@dataclass(frozen=True, slots=True)
class Preset:
    """Keys of the policy with the values of one set of rules."""

    name: str
    meaning: str
    """One line."""
    values: Mapping[Path, Value]
    form: Form
    """The form of all instances of WMSHistory."""

    @property
    def text(self) -> str:
        """The tables of the preset, to be added to a policy that has none of them."""
        lines = [f"# The rules {self.name}: {self.meaning}."]
        for table, paths in groupby(self.values, key=lambda path: path[:-1]):
            keys = (f"{toml.key(path[-1])} = {written(self.values[path])}" for path in paths)
            lines += [toml.table(*table), *keys, ""]
        return "\n".join(lines)

    def applied_to(self, text: str) -> str:
        """A policy with the rules of the preset; all other keys and the comments stay. `text` is valid TOML."""
        corrector = ("correction", HistoryInstance.corrector)
        instances = value_at(tomllib.loads(text), corrector)
        forms: dict[Path, Value] = {}
        for name, instance in instances.items() if isinstance(instances, dict) else ():
            if isinstance(instance, dict) and instance.get("form", self.form) != self.form:
                forms[*corrector, name, "form"] = self.form
        return with_values(text, {**self.values, **forms})
