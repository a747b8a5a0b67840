"""`pilotage pilot show|logs|kill`."""
