"""Applying a policy, and its consequences for waiting jobs."""
