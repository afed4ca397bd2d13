"""The management API: entities over HTTP, as ATOM entries, the way ServiceBusAdministrationClient asks for them.

The protocol is that of "Service Bus resource provider: entities" (learn.microsoft.com/rest/api/servicebus), as
azure-servicebus 7.15 speaks it; limits and defaults are those the service documents for each property, and those
its other SDKs check before they ask. XML is read with the standard library's parser, which does not guard against
documents made to exhaust it: this port is for tests and tools on the same machine, on the loopback interface only.
"""
