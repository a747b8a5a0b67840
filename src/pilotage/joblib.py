"""joblib's calls as jobs: `import pilotage.joblib`, then `joblib.parallel_config("pilotage")`.

scikit-learn's `n_jobs` then runs here. The nodes need joblib, and the libraries of the functions.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import joblib

from pilotage.client.executor.executor import Executor

ALL = 64
"""Calls that `n_jobs=-1` keeps on their way: twice as many are sent ahead."""


class PilotageBackend(joblib.parallel.ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
    """One executor for each call of `Parallel`, with the options that `parallel_config` is given."""

    supports_retrieve_callback = True

    def __init__(self, nesting_level: int | None = None, **options: Any) -> None:
        super().__init__(nesting_level=nesting_level)
        self._options = options
        self._executor: Executor | None = None
        self._futures: set[Future[Any]] = set()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        return ALL if n_jobs is None or n_jobs < 0 else n_jobs

    def configure(self, n_jobs: int | None = 1, parallel: Any = None, **_: Any) -> int:
        self.parallel = parallel
        self._executor = Executor(**self._options)
        return self.effective_n_jobs(n_jobs)

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], None] | None = None) -> Future[Any]:
        assert self._executor is not None
        future = self._executor.submit(func)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        if callback:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        for future in list(self._futures):
            future.cancel()

    def terminate(self) -> None:
        if self._executor:
            self._executor.shutdown(cancel_futures=True)
            self._executor = None


joblib.register_parallel_backend("pilotage", PilotageBackend)
