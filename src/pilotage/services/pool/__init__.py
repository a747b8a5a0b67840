"""The pool in memory: the index of waiting jobs, what is known of pilots, limits and other servers."""
