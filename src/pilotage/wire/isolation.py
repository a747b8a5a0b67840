"""Folders that pilots with isolation show to payloads; the server reads them for its warnings."""

from __future__ import annotations

SYSTEM_FOLDERS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt"),
    *("/nix", "/gnu", "/cvmfs", "/sys"),
)
"""Folders of the node that every payload sees, read-only."""
