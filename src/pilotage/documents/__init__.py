"""Documents that stand alone: drawings and HTML files without script, without outside addresses. Pure functions."""
