"""A small tree of pages, and the site that `make docs` would build of it."""

from __future__ import annotations

import os
import subprocess
import sys
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.support.watchdog import WATCHDOG_S

ROOT = Path(__file__).resolve().parents[2]

FILES = {
    "README.md": """# Shop

## Documentation

| to | read |
|---|---|
| use it | [orders](docs/orders.md), [an order's fields](docs/orders.md#fields) |
| understand | [decisions](docs/decisions/README.md) |
""",
    "docs/orders.md": """# Orders

An order is a parcel that is not packed. See [decision 1](decisions/0001-parcels.md#why-parcels) and
[the code](../shop.py).

<picture>
  <source media="(prefers-color-scheme: dark)" srcset="images/order-dark.png">
  <img alt="An order" src="images/order.png">
</picture>

## Fields

| field | meaning | type | default | since | example |
|---|---|---|---|---|---|
| `identifier_of_the_order_within_its_shop` | its number | integer | the next one | 1.0.0 | `10000000000000000` |

```sh
curl --silent --show-error --fail --data '{"item": "a very long name of an item"}' http://127.0.0.1:8080/orders/1
```
""",
    "docs/decisions/README.md": "# Decisions\n\n- [Parcels](0001-parcels.md)\n",
    "docs/decisions/0001-parcels.md": """# Parcels

## Why parcels

They are small.

```mermaid
flowchart LR
    accTitle: An order becomes a parcel
    order --> parcel
```
""",
    "docs/site/reference/shop.rst": (
        "shop\n====\n\n.. automodule:: shop\n   :no-members:\n\n"
        ".. autoclass:: shop.Order\n\n.. autofunction:: shop.pack\n"
    ),
    "docs/site/reference/commands.rst": "Commands\n========\n\n.. program-output:: python --version\n",
    "shop.py": '''"""A shop: `pack` packs an `Order`, and `unpack()` is code.
"""

from __future__ import annotations

from ordering import Order

__all__ = ["Order", "pack"]


class Box:
    """Not public."""


def pack(order: Order) -> bytes:
    """Pack an order.

    Args:
        order: What to pack.
    """
    return b""
''',
    "ordering.py": '''"""Orders."""

from dataclasses import dataclass


@dataclass
class Order:
    """An order.

    Attributes:
        item: What it contains.
    """

    item: str = ""

    def cancel(self) -> None:
        """Cancel it."""
''',
}
# The digest of the text of its diagram.
_DIAGRAM = "29c2d4359687"
_SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'
# A picture of one pixel.
_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c020000000b4944415478da63fcff1f0003030200efa2a75b"
    "0000000049454e44ae426082"
)


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a line for each request."""

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


def write_tree(folder: Path) -> Path:
    """Write the tree, which has no errors; returns its folder."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "docs/images").mkdir()
    (folder / "docs/site/diagrams").mkdir()
    for scheme in ("light", "dark"):
        (folder / f"docs/site/diagrams/{_DIAGRAM}-{scheme}.svg").write_text(_SVG, encoding="utf-8")
    for name in ("order.png", "order-dark.png"):
        (folder / "docs/images" / name).write_bytes(_PNG)
    return folder


def build_site(
    tree: Path, output: Path, *more: str, builder: str = "html", repository: str = ""
) -> tuple[int, str]:
    """Build the site of a tree; returns the exit code, and what was printed."""
    options = [
        *("-D", "reference_modules=shop"),
        *("-D", "reference_pages=docs/site/reference/shop"),
        *("-D", "command_pages=docs/site/reference/commands"),
        *more,
    ]
    script = "import sys; from docs.site.__main__ import build, Path as P; " + (
        f"sys.exit(build(P({str(tree)!r}), P({str(output)!r}), *{options!r}, builder={builder!r}))"
    )
    elsewhere = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**elsewhere, "PYTHONPATH": str(tree), "DOCS_REPOSITORY": repository},
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr
