"""The forwarding of requirements: the residual of an expression as native flags of a batch system. Pure.

rules        the rules of a forward table
table        an adapter's rules and options
native       restrictions in native terms; the hosts that they accept
conditions   one part of a residual as restrictions
expressions  one part of a residual as an expression of the batch system
forward      a residual as flags; the part that no flag says
selection    names of hosts as flags
hook         environment and arguments of the site's own program
"""
