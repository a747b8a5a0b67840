"""Doubles of batch systems that nobody can install here: commands with the documented options and answers.

A double keeps its jobs in a folder and starts their scripts as processes. It has no daemon: each command first looks
which jobs have ended and starts those that may run. Unknown options fail as those of the real commands do.
"""
