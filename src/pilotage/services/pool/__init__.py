"""The pool in memory: the index of waiting jobs, caches of rows, limits and the other servers."""
