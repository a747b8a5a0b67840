"""Spans of OpenTelemetry, by option: the present span of a thread or task, and their way to a collector.

Nothing of OpenTelemetry is imported before a collector is named.
"""
