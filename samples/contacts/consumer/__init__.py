"""A consumer of contact events. It builds a directory of contacts from events alone.

What each guarantee saves the consumer:

- The relay publishes the events of a contact in commit order, and a session delivers them in that order to one
  receiver at a time. The consumer does not sort events, and no two receivers handle the same contact.
- The topic drops what is published twice within its duplicate detection window, so repetitions are rare.
- Service Bus delivers at least once, and an event may be repeated, or arrive after later ones, beyond the window
  or when operators replay or release it. So every event carries the version of its contact, and the directory
  applies only newer versions. That alone makes the handler idempotent: it needs no list of handled ids.
- An event that cannot be sent goes to quarantine, and later ones arrive without it. The events of a contact are
  numbered without gaps (the application property `sequence`), so the consumer records which are missing.
"""
