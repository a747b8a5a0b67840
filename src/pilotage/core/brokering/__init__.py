"""Matchmaking of computing elements by ClassAds: which CE can run a job, in which order, and why not."""
