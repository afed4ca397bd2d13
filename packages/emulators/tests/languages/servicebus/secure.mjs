// TLS and WebSockets, with the certificate that the emulator made: NODE_EXTRA_CA_CERTS names its authority.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import WebSocket from "ws";
import { assert, bodies, check, connect, connectionStrings, queue, receive } from "./harness.mjs";

async function exchanged(options) {
  const own = connect(options);
  const name = await queue();
  const sent = ["small", Buffer.alloc(200_000, 7)];
  for (const body of sent) await own.createSender(name).sendMessages({ body });
  const receiver = own.createReceiver(name);
  const received = await receive(receiver, 2);
  for (const message of received) await receiver.completeMessage(message);
  await own.close();
  assert.deepEqual(bodies(received), sent);
}

check("messages pass with TLS", () => exchanged({ connectionString: connectionStrings.secure }));

check("messages pass over WebSockets", () =>
  exchanged({ connectionString: connectionStrings.https, webSocketOptions: { webSocket: WebSocket } }),
);

check("a session is accepted over WebSockets", async () => {
  const own = connect({
    connectionString: connectionStrings.https,
    webSocketOptions: { webSocket: WebSocket },
  });
  const name = await queue({ requiresSession: true });
  await own.createSender(name).sendMessages({ body: "x", sessionId: "s" });
  const session = await own.acceptNextSession(name);
  await session.setSessionState("kept");
  assert.deepEqual([bodies(await receive(session)), await session.getSessionState()], [["x"], "kept"]);
  await own.close();
});

check("a client that does not know the certificate does not connect", async () => {
  const program = `
    const { ServiceBusClient } = require("@azure/service-bus");
    const client = new ServiceBusClient(process.env.SECURE, { retryOptions: { maxRetries: 0 } });
    const sent = client.createSender("any").sendMessages({ body: "x" });
    sent.catch((error) => { console.log(error.message); process.exit(); });`;
  const { NODE_EXTRA_CA_CERTS: _, ...env } = process.env;
  const child = spawn(process.execPath, ["--eval", program], {
    env,
    cwd: fileURLToPath(new URL(".", import.meta.url)),
    stdio: ["ignore", "pipe", "inherit"],
  });
  let printed = "";
  child.stdout.on("data", (data) => (printed += data));
  await once(child, "close");
  assert.match(printed, /certificate/);
});
