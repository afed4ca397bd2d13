"""Requests to an entity's `$management` node: node → operations on messages, sessions and rules → request.

Operations, their fields and their answers: "AMQP 1.0 in Service Bus: request-response-based operations"
(learn.microsoft.com).
"""
