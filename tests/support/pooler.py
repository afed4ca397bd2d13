"""A connection pooler that drops the options of a session, as PgBouncer does with `ignore_startup_parameters`."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from psycopg.conninfo import conninfo_to_dict


@contextmanager
def dropping_options(url: str) -> Iterator[str]:
    """A pooler that passes one connection on, without its options, as PgBouncer ignores them; its URL."""
    given = conninfo_to_dict(url)

    def serve(server: socket.socket) -> None:
        client, _ = server.accept()
        with client, socket.socket(socket.AF_UNIX) as upstream:
            upstream.connect(f"{given['host']}/.s.PGSQL.5432")
            (length,) = struct.unpack("!i", client.recv(4, socket.MSG_WAITALL))
            head = client.recv(length - 4, socket.MSG_WAITALL)
            words = head[4:].split(b"\0")
            pairs = zip(words[::2], words[1::2], strict=False)
            kept = b"".join(name + b"\0" + value + b"\0" for name, value in pairs if name not in (b"", b"options"))
            upstream.sendall(struct.pack("!i", len(kept) + 9) + head[:4] + kept + b"\0")
            both = {client: upstream, upstream: client}
            while True:
                for source in select.select(list(both), [], [])[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    both[source].sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=serve, args=(server,))
        thread.start()
        try:
            port = server.getsockname()[1]
            yield f"postgresql://postgres@127.0.0.1:{port}/{given['dbname']}?sslmode=disable&gssencmode=disable"
        finally:
            thread.join(10)
