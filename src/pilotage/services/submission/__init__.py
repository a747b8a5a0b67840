"""From a description to jobs that wait in a task queue."""
