"""What the Azure Functions host does for a Cosmos DB trigger: leases, batches, invocations, retries, checkpoints.

For development and tests only. It runs a deployed function app's own directory unchanged, against anything that
speaks the Cosmos DB protocol, and behaves as the real host and its Cosmos DB extension do where that decides
whether events are lost. Host and worker are two processes, as in Azure.

The behaviour was read from Azure/azure-webjobs-sdk-extensions (the trigger's listener), Azure/azure-webjobs-sdk
(retries), Azure/azure-functions-host and its Python worker (invocations), and Azure/azure-cosmos-dotnet-v3 (the
change feed processor), and seen on host 4.1037.
"""
