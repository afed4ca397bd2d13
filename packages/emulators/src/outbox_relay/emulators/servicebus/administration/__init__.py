"""The management API: entities over HTTP as Atom entries, for ServiceBusAdministrationClient.

The protocol is that of "Service Bus resource provider: entities" (learn.microsoft.com/rest/api/servicebus), as
azure-servicebus 7.15 implements it; limits and defaults are those the service documents for each property, and
those that its other SDKs check before a request. XML is parsed by the standard library, which does not guard
against documents made to exhaust it: this port is for tests and tools on the same machine, on the loopback
interface only.
"""
