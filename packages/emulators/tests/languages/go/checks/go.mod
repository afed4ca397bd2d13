module outbox.emulators/checks

go 1.25.0
