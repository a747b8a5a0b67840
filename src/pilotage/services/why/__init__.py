"""Why a job waits, and how long queues have waited for each reason."""
