"""The console over HTTP: `application` makes the aiohttp application of a `View`."""
