// Add up the items that were ordered, in an SQLite database: dotnet run -- FILE. SIGTERM and Ctrl-C stop it.
using System.Runtime.InteropServices;
using System.Text.Json;
using Azure.Messaging.ServiceBus;
using Microsoft.Data.Sqlite;

var signs = new Dictionary<string, int> { ["OrderPlaced"] = 1, ["OrderCancelled"] = -1 };
var names = new JsonSerializerOptions(JsonSerializerDefaults.Web);
var database = new SqliteConnectionStringBuilder { DataSource = args[0] }.ToString();
using (var connection = Open())
{
    // An id is unique within its session.
    Execute(connection, "CREATE TABLE IF NOT EXISTS handled (session TEXT, id TEXT, PRIMARY KEY (session, id))");
    Execute(connection, "CREATE TABLE IF NOT EXISTS ordered (item TEXT PRIMARY KEY, quantity INTEGER NOT NULL)");
}

await using var client = new ServiceBusClient(Environment.GetEnvironmentVariable("SERVICEBUS"));
await using var processor = client.CreateSessionProcessor(
    "domain-events",
    "all",
    new ServiceBusSessionProcessorOptions
    {
        AutoCompleteMessages = false,
        MaxConcurrentSessions = 8,
        MaxConcurrentCallsPerSession = 1, // for the order
        MaxAutoLockRenewalDuration = Timeout.InfiniteTimeSpan,
        SessionIdleTimeout = TimeSpan.FromSeconds(1), // until another session gets its place
    });
processor.ProcessMessageAsync += HandleAsync;
processor.ProcessErrorAsync += failure =>
{
    Console.Error.WriteLine($"{failure.ErrorSource}: {failure.Exception.Message}");
    return Task.CompletedTask;
};

var stopping = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
using var terminated = PosixSignalRegistration.Create(PosixSignal.SIGTERM, Stop);
using var interrupted = PosixSignalRegistration.Create(PosixSignal.SIGINT, Stop);
await processor.StartProcessingAsync();
await stopping.Task;
await processor.StopProcessingAsync();

void Stop(PosixSignalContext signal)
{
    signal.Cancel = true; // the process ends after StopProcessingAsync
    stopping.TrySetResult();
}

async Task HandleAsync(ProcessSessionMessageEventArgs delivery)
{
    try
    {
        Handle(delivery.Message);
        await delivery.CompleteMessageAsync(delivery.Message);
    }
    catch
    {
        // The processor abandons the message: it comes again, before its successors.
        await Task.Delay(TimeSpan.FromSeconds(10), delivery.CancellationToken);
        throw;
    }
}

void Handle(ServiceBusReceivedMessage message)
{
    if (!signs.TryGetValue(message.Subject ?? "", out var sign))
    {
        return;
    }
    var order = JsonSerializer.Deserialize<Order>(message.Body.ToString(), names)
        ?? throw new InvalidDataException($"Message {message.MessageId} has no order.");
    var first = Once(message, order.Item, sign * order.Quantity);
    Console.WriteLine($"{(first ? "handled" : "repeated")} {message.MessageId}");
}

// Store the effect and the message's id in one transaction; return false if they were stored before.
bool Once(ServiceBusReceivedMessage message, string item, long quantity)
{
    using var connection = Open();
    using var transaction = connection.BeginTransaction(); // of one writer at a time
    var stored = Execute(
        connection,
        "INSERT INTO handled VALUES ($session, $id) ON CONFLICT DO NOTHING",
        ("$session", message.SessionId),
        ("$id", message.MessageId));
    if (stored == 0)
    {
        return false;
    }
    Execute(
        connection,
        "INSERT INTO ordered VALUES ($item, $quantity) "
            + "ON CONFLICT (item) DO UPDATE SET quantity = quantity + excluded.quantity",
        ("$item", item),
        ("$quantity", quantity));
    transaction.Commit();
    return true;
}

SqliteConnection Open()
{
    var connection = new SqliteConnection(database);
    connection.Open();
    return connection;
}

static int Execute(SqliteConnection connection, string statement, params (string Name, object Value)[] parameters)
{
    using var command = connection.CreateCommand();
    command.CommandText = statement;
    foreach (var (name, value) in parameters)
    {
        command.Parameters.AddWithValue(name, value);
    }
    return command.ExecuteNonQuery();
}

record Order(string Item, long Quantity);
