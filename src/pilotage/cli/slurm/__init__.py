"""The commands of Slurm for jobs, with the same names, options, words and exit codes, on jobs of Pilotage."""
