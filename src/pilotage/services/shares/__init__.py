"""Use of resources, share corrections and priorities."""
