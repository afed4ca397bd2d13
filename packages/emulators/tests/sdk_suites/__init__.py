"""Microsoft's own tests of azure-cosmos and azure-servicebus, run against the emulators.

They come with the source distributions of the installed versions, which are downloaded and not kept here.
`python -m packages.emulators.tests.sdk_suites cosmos` and `… servicebus` run them; `known.py` lists what
fails, and why.
"""
