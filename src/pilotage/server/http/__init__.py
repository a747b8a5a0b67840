"""The HTTP server: connections, pilots' endpoints, routes."""
