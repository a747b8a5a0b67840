"""The program in virtual time: its own services, with simulated batch systems."""
