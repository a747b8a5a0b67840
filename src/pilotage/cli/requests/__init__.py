"""`pilotage request ...`"""
