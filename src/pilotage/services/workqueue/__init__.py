"""Use cases of the work queue: intake, pulls of agents, release to the pool, and roll-up."""
