"""The server in virtual time: its own services, duties and store, with simulated pilots, batch systems and people."""
