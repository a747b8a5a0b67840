"""Isolation of payloads: each one runs in a mount, PID and IPC namespace of its own."""
