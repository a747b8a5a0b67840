"""How many pilots to start at a CE."""
