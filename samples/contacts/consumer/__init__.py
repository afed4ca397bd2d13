"""A consumer of contacts' events: it keeps a directory of contacts that is built from events alone.

What makes what unnecessary:

- The relay publishes the events of a contact in the order of their commits, a session gives them in that order
  and to one receiver at a time: nothing is sorted here, and no two receivers meet at one contact.
- The topic drops what is published twice within its duplicate detection window: seldom is anything repeated.
- Service Bus delivers at least once, and beyond the window, or when operators replay or release events, an event
  comes again, or comes after later ones. So every change carries its contact's version, and the directory takes
  over only what is newer than what it has. That alone makes the handler idempotent: no list of the ids
  handled so far has to be kept.
- An event that cannot be sent is set aside in quarantine, and those behind it come without it. The numbers of a
  contact's events, the application property `sequence`, go up by one: the directory notes which have not come.
"""
