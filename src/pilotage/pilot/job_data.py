"""The data of one assignment: prepared before its payload starts, stored after it has ended."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence

from pilotage.wire.data import DataOrder
from pilotage.wire.pilot import Finish, Payload

from .cannot_run import CannotRun
from .data_actions import carry_out
from .data_in import REPORT_FILE, folders_of, prepare_inputs, write_order
from .data_out import DataFailed, store_outputs
from .data_report import BadReport, read_report
from .events import Key
from .isolation.client import Isolation
from .job_logs import Stream, record_of, store_logs
from .log import log
from .output_search import SearchCancelled
from .place import DataAttempt, DataCancelled
from .places import OpenPlaces


class JobData:
    """Used in background threads, one after the other."""

    def __init__(self, order: DataOrder, key: Key) -> None:
        self._order = order
        self._key = key
        self.environment: Dict[str, str] = {}
        """Variables of the payload."""
        self.folders: List[str] = []
        """Folders of input files, which a container must show."""

    @property
    def runs_in_pilot(self) -> bool:
        """Whether the pilot's own program is run instead of a payload."""
        return bool(self._order.action)

    @property
    def stores_logs(self) -> bool:
        """Whether the logs of this attempt go to a storage place."""
        return bool(self._order.log_name)

    def prepare(self, isolation: Optional[Isolation], attempt: DataAttempt) -> None:
        """Find the input files and describe them for the program. Raises CannotRun; does nothing if cancelled."""
        if self.runs_in_pilot:
            return
        try:
            paths = prepare_inputs(self._order, isolation, OpenPlaces(self._order, attempt))
        except DataCancelled:
            return
        try:
            self.environment = write_order(self._order, paths, self._key, attempt.tmp)
        except OSError as error:
            raise CannotRun(f"cannot describe the input data: {error}", failure="node") from None
        self.folders = folders_of(paths)

    def store(self, finish: Finish, folder: str, attempt: DataAttempt) -> None:
        """Store the outputs of a payload that has ended well, and list them in its finish."""
        if finish.failure or finish.signal or finish.exit_code:
            return
        try:
            report = read_report(attempt.tmp, REPORT_FILE)
            finish.files = store_outputs(self._order, folder, report, OpenPlaces(self._order, attempt))
            finish.message = finish.message or report.message
        except BadReport as error:
            finish.failure, finish.message = "payload", f"its report is not valid: {error}"
        except DataFailed as error:
            finish.failure, finish.message = error.failure, str(error)
        except (DataCancelled, SearchCancelled):
            finish.failure, finish.message = "output", "output: cancelled"
        except OSError as error:
            finish.failure, finish.message = "output", f"output: {error}"

    def store_logs(
        self, finish: Finish, payload: Payload, streams: Sequence[Stream], attempt: DataAttempt
    ) -> None:
        """Store the logs of an attempt that has ended, and name them in its finish.

        The server accepts no finish of a killed job, so its logs are not stored. Logs that no place takes do not
        change the result of the job.
        """
        if not self.stores_logs or finish.failure == "killed":
            return
        try:
            record = record_of(self._order, payload, finish)
            finish.logs = store_logs(self._order, record, streams, attempt)
        except DataCancelled:
            return
        except (DataFailed, OSError) as error:
            log("cannot store the logs of a job", job=self._key[0], reason=str(error))
            finish.message = finish.message or f"its logs were not stored: {error}"

    def carry_out(self, finish: Finish, attempt: DataAttempt) -> None:
        """Run the pilot's own program, and report its result in the finish."""
        try:
            finish.files = carry_out(self._order, OpenPlaces(self._order, attempt))
            finish.exit_code = 0
        except (CannotRun, DataFailed) as error:
            finish.failure, finish.message = error.failure, str(error)
        except BadReport as error:
            finish.failure, finish.message = "payload", str(error)
        except DataCancelled:
            finish.failure = finish.failure or "killed"
        except OSError as error:
            finish.failure, finish.message = "node", str(error)
