"""Pilotage: pilot-based workload management for distributed computing."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pilotage.client.executor.executor import Executor
else:

    def __getattr__(name: str) -> object:
        """`Executor` is imported when it is used: each command imports this package."""
        if name != "Executor":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        return importlib.import_module("pilotage.client.executor.executor").Executor


__version__ = "0.1.0"
__all__ = ["Executor", "__version__"]
