"""The console: one page that shows where events are. `web` serves it, `observer` gathers what it shows."""
