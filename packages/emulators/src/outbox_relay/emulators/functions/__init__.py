"""The Azure Functions host, for Cosmos DB triggers: leases, pages of changes, invocations, retries, checkpoints.

It runs the directory of a deployed function app unchanged, against any server of the Cosmos DB protocol. Where it
matters for the loss of events it behaves as the real host and its Cosmos DB extension. Host and worker are two
processes, as in Azure.

    host            one app: settings, worker, a listener for each function
    command, admin  the host as a process, and its HTTP endpoints
    listener        takes leases (balancing) and runs a processor for each
    partition       one owned lease: feed → executor → checkpoint
    executor        one invocation with its retries → worker/
    leases          lease documents, and the initialization lock
    app, host_json, settings, trigger, retries      what the app declares

The behaviour is that of Azure/azure-webjobs-sdk-extensions (the trigger's listener), Azure/azure-webjobs-sdk
(retries), Azure/azure-functions-host and its Python worker (invocations), and Azure/azure-cosmos-dotnet-v3 (the
change feed processor), as read in their source, and as observed on host 4.1037.
"""
