"""Serves the site on this machine, and builds it anew before it answers for a page if a source has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_PAGES = ("*.md", "*/README.md", "*/*/README.md", "docs/**/*", "packages/emulators/docs/**/*.md")
_DOCSTRINGS = ("packages/*/src/**/*.py", "outbox_relay/changefeed/**/*.py")


def sources(root: Path) -> Iterator[Path]:
    """Yield the files that the site is made of."""
    for pattern in (*_PAGES, *_DOCSTRINGS):
        yield from (path for path in root.glob(pattern) if path.is_file() and "__pycache__" not in path.parts)


class Freshness:
    """Calls `build` when a source below `root` is another one than before."""

    def __init__(self, root: Path, build: Callable[[], object]) -> None:
        self._root = root
        self._build = build
        self._lock = threading.Lock()
        self._known = self._versions()

    def ensure(self) -> None:
        """Return once the site is that of the sources."""
        with self._lock:
            found = self._versions()
            if found != self._known:
                self._known = found
                self._build()

    def _versions(self) -> dict[Path, int]:
        found = {}
        for path in sources(self._root):
            # Editors replace a file when they save it.
            with suppress(FileNotFoundError):
                found[path] = path.stat().st_mtime_ns
        return found


class _Site(SimpleHTTPRequestHandler):
    """The files of the site."""

    def __init__(self, *args: Any, freshness: Freshness, **options: Any) -> None:
        self._freshness = freshness
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        """Answer with a file, after a build if that is due."""
        if self.path.partition("?")[0].endswith((".html", "/")):
            self._freshness.ensure()
        super().do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


def serve(site: Path, port: int, freshness: Freshness) -> None:
    """Serve a folder on the loopback address until Ctrl-C. Port 0 takes any free port."""
    answering = partial(_Site, directory=str(site), freshness=freshness)
    with ThreadingHTTPServer(("127.0.0.1", port), answering) as server:
        print(f"http://127.0.0.1:{server.server_port}/  Press Ctrl-C to stop.", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
