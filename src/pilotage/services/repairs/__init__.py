"""Repairs of the states that the checks of store/integrity find. No server runs meanwhile.

A repair changes the rows of one batch in one transaction, with an event. Where a server has a function that
moves jobs, requests or elements, the repair calls it. Work that a server then does by itself is left to the server.
"""
