"""The console: one page that shows where events are. `application` makes it, `observer` gathers what it shows."""
