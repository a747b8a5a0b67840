"""Changes of a job's state: transitions, results, kill and reschedule."""
