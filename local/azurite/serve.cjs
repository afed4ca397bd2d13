// Azurite's Blob Storage, until standard input ends: it outlives nothing that has started it.
process.stdin.resume().on("end", () => process.exit(0));
require("azurite/dist/src/blob/main.js");
