"""Catalogues of data sets beside our own."""
