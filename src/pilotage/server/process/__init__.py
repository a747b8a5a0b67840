"""Start and end of the server process, and its home folder."""
