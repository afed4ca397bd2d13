// Checks of Service Bus with Microsoft's client for JavaScript: each expects what the service does.
//
// SERVICEBUS, SECURE and HTTPS are connection strings for AMQP, AMQP with TLS, and HTTPS; ADMIN is the address of
// the emulator's own HTTP endpoint. `node main.mjs WORDS` runs the checks with these words in their names.
// First those that wait, as others run meanwhile, and those that list, as there is little yet.
import "./faults.mjs";
import "./listing.mjs";
import "./sending.mjs";
import "./sizes.mjs";
import "./scheduling.mjs";
import "./receiving.mjs";
import "./settling.mjs";
import "./deadletters.mjs";
import "./peeking.mjs";
import "./sessions.mjs";
import "./sessionstate.mjs";
import "./topics.mjs";
import "./rules.mjs";
import "./subscribing.mjs";
import "./errors.mjs";
import "./access.mjs";
import "./forwarding.mjs";
import "./administration.mjs";
import "./defaults.mjs";
import "./secure.mjs";
import { main } from "./harness.mjs";

await main(process.argv[2]);
