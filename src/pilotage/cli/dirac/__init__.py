"""The commands of DIRAC for jobs, with the same names, options, words and exit codes, on jobs of Pilotage."""
