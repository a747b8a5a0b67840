"""The record of a server's run: its inputs with their instants, and the answers by which a replay is compared."""
