"""The columns of row types. A field is spelled in its type and in the schema, and nowhere else."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any


def columns(row: type[Any], prefix: str = "", /, **expressions: str) -> str:
    """The SELECT list of a named tuple or dataclass, in the order of its fields: `Row(*found)` fits.

    `expressions`: the SQL of fields whose column has another name. `prefix`: of the other columns, as in "p.".
    """
    names = [field.name for field in fields(row)] if is_dataclass(row) else row._fields
    unknown = expressions.keys() - set(names)
    if unknown:
        raise TypeError(f"{row.__name__} has no field {', '.join(sorted(unknown))}")
    return ", ".join(expressions.get(name) or prefix + name for name in names)
