"""The pilot: the program that runs in a batch job on a worker node.

It asks the server for jobs that fit the node, runs them as its own user, reports their results, and leaves.
It connects to the server and listens on no port. It uses the Python 3.9 standard library and nothing else.
"""
