"""The pilot: the program on the worker node. Standard library only, Python 3.9 or newer."""
