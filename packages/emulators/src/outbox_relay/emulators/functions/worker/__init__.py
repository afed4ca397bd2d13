"""The worker, which loads the function app and calls its functions for the host.

In Azure it is a separate process, which the host reaches over gRPC. Here it is one too, over a socket, so that
either can die without the other. Tests may run it in the host's process.
"""
