"""The checks of a database: rules that it meets after every commit, by subject. `registry` has all of them.

`pilotage db check` tells the rows that break a rule. services/repairs has the repairs.
"""
