"""The agent: the process that pulls elements of the work queue and splits them into jobs."""
