"""The jobs of a trace, and readers of traces."""

from pilotage.twin.workload.trace_jobs import TraceJob, TraceJobs

__all__ = ["TraceJob", "TraceJobs"]
