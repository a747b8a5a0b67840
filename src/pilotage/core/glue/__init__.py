"""The attributes of CEs and hosts by the GLUE schema, and the facts that batch systems tell."""
