"""The worker: what loads the function app, and calls its functions when the host says so.

In Azure it is a process of its own, to which the host speaks over gRPC. It is here as well, over a socket, so that
either can die without the other; within tests it may live in the host's process.
"""
