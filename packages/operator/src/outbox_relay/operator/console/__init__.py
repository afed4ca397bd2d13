"""The console: one page that shows where events are. `application` serves it, `observer` collects its data."""
