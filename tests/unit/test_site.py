"""The documentation as a site: what fails its build, where links lead, and that it is served."""

from __future__ import annotations

import re
import runpy
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Sequence
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.site import ROOT, Quiet, build_site, write_tree

# In one process, the site of the tree is built once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("site")]

pytest.importorskip("sphinx", reason="Sphinx is not installed: `make docs DOCS=--build` installs it")

REPOSITORY = "https://github.test/shop/shop"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the tree, of which the repository's address is known."""
    output = tmp_path_factory.mktemp("site")
    tree = write_tree(tmp_path_factory.mktemp("tree"))
    assert build_site(tree, output, repository=REPOSITORY) == (0, "")
    return output / "html"


WRONG = [
    ("docs/orders.md", "0001-parcels.md#why", "0001-parcel.md#why", "orders.md:3: WARNING: "),
    ("docs/orders.md", "](../shop.py)", "](../shops.py)", "../shops.py"),
    ("README.md", "orders.md#fields", "orders.md#field", "'field'"),
    (
        "README.md",
        "| understand | [decisions](docs/decisions/README.md) |\n",
        "",
        "docs/decisions/README.md has no place in the reading order: "
        "link to it from the table in README.md, under '## Documentation'",
    ),
    (
        "docs/decisions/README.md",
        "[Parcels](0001-parcels.md)",
        "Parcels",
        "0001-parcels.md has no place in the reading order: link to it from docs/decisions/README.md",
    ),
    ("docs/decisions/0001-parcels.md", "order -->", "orders -->", "draw it with `make docs DOCS=--draw`"),
    ("shop.py", "code.\n", "code.\n\n    pack(order)\n\nIt is small.\n", "An example would be shown as prose"),
    ("ordering.py", "        item: What it contains.\n", "", "shop.Order does not say what item is"),
    ("ordering.py", '"""Cancel it."""', "...", "shop.Order.cancel is public and has no docstring"),
    (
        "docs/site/reference/shop.rst",
        ".. autofunction:: shop.pack",
        "",
        "shop.pack is public and not in the reference: add it to one of docs/site/reference/shop.rst",
    ),
]
"""Changes of a file: its name, the text before and after, and the error that the build then prints."""


def build_wrong(folder: Path, changes: Sequence[tuple[str, str, str]]) -> tuple[int, str]:
    """Build the site of the tree with these changes; returns the exit code, and what was printed."""
    tree = write_tree(folder / "tree")
    for file, before, after in changes:
        text = (tree / file).read_text(encoding="utf-8")
        assert text.count(before) == 1
        (tree / file).write_text(text.replace(before, after), encoding="utf-8")
    return build_site(tree, folder / "site", builder="dummy")


def test_everything_that_is_wrong_fails_the_build(tmp_path: Path) -> None:
    code, printed = build_wrong(tmp_path, [change[:3] for change in WRONG])

    assert [says for *_, says in WRONG if says not in printed] == []
    assert code != 0


@pytest.mark.parametrize(
    ("file", "before", "after", "says"),
    [
        WRONG[0],
        # Not beside the last of those, without which its reference shows no annotation.
        ("shop.py", "-> bytes:", "-> Box:", "reference target not found: shop.Box"),
        ("docs/decisions/0001-parcels.md", "    accTitle: An order becomes a parcel\n", "", "no `accTitle:`"),
        ("README.md", "## Documentation", "## Pages", "README.md has no table of pages under '## Documentation'"),
    ],
    ids=["one link", "annotation", "a diagram's title", "no table"],
)
def test_one_error_fails_the_build(tmp_path: Path, file: str, before: str, after: str, says: str) -> None:
    code, printed = build_wrong(tmp_path, [(file, before, after)])

    assert says in printed
    assert code != 0


def test_a_build_that_failed_fails_again(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    with (tree / "docs/orders.md").open("a", encoding="utf-8") as page:
        page.write("\n```mermaid\nflowchart LR\n```\n")

    first, second = (build_site(tree, tmp_path / "site", builder="dummy") for _ in range(2))

    assert "has no `accTitle:`" in first[1]
    assert second == first


def test_a_link_to_a_file_that_is_no_page_leads_to_the_repository(site: Path) -> None:
    page = (site / "docs/orders.html").read_text(encoding="utf-8")

    assert f'href="{REPOSITORY}/blob/HEAD/shop.py"' in page
    assert f'href="{REPOSITORY}/edit/main/docs/orders.md"' in page
    assert 'href="decisions/0001-parcels.html#why-parcels"' in page


@pytest.mark.parametrize(
    ("environment", "known"),
    [
        ({}, ""),
        ({"GITHUB_SERVER_URL": "https://github.test", "GITHUB_REPOSITORY": "shop/shop"}, REPOSITORY),
        ({"DOCS_REPOSITORY": REPOSITORY, "GITHUB_SERVER_URL": "x", "GITHUB_REPOSITORY": "y"}, REPOSITORY),
    ],
    ids=["elsewhere", "on GitHub", "by hand"],
)
def test_the_repositorys_address_is_githubs_or_set_by_hand(
    environment: dict[str, str], known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DOCS_REPOSITORY", "GITHUB_SERVER_URL", "GITHUB_REPOSITORY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "path", [*sys.path])

    assert runpy.run_path(str(ROOT / "docs/site/conf.py"))["repository_url"] == known


def test_without_the_repositorys_address_it_leads_to_a_copy(tmp_path: Path) -> None:
    code, printed = build_site(write_tree(tmp_path / "tree"), tmp_path / "site")
    [copy] = (tmp_path / "site/html/_downloads").rglob("shop.py")

    assert (code, printed) == (0, "")
    assert str(copy.relative_to(tmp_path / "site/html")) in (tmp_path / "site/html/docs/orders.html").read_text(
        "utf-8"
    )


def test_a_picture_has_a_variant_for_dark_pages(site: Path) -> None:
    page = (site / "docs/orders.html").read_text(encoding="utf-8")
    images = dict(re.findall(r'<img [^>]*class="only-(\w+)[^>]*src="([^"]+)"', page))

    assert images == {"light": "../_images/order.png", "dark": "../_images/order-dark.png"}


def test_code_has_a_copy_button_and_output_none(site: Path) -> None:
    page = (site / "docs/orders.html").read_text(encoding="utf-8")
    script = (site / "_static/copybutton.js").read_text(encoding="utf-8")

    assert 'src="../_static/copybutton.js' in page
    assert '<div class="highlight-sh notranslate"><div class="highlight"><pre>' in page
    assert "div:not(.highlight-text) > div.highlight > pre" in script


def test_a_diagram_is_a_picture_that_says_what_it_shows(site: Path) -> None:
    page = (site / "docs/decisions/0001-parcels.html").read_text(encoding="utf-8")

    for scheme in ("light", "dark"):
        assert re.search(
            rf'<img alt="An order becomes a parcel" class="only-{scheme}" src="[^"]+-{scheme}\.svg', page
        )
    assert "flowchart" not in page


def test_a_dead_link_to_another_site_is_found_where_it_is_asked_for(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tree))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        with (tree / "docs/orders.md").open("a", encoding="utf-8") as page:
            page.write(f"\n[One]({address}/shop.py) and [none]({address}/none.py)\n")
        code, printed = build_site(tree, tmp_path / "site", "-D", "linkcheck_ignore=none:", builder="linkcheck")
        server.shutdown()

    assert code != 0
    assert re.findall(r"broken link: (\S+)", printed) == [f"{address}/none.py"]


def test_the_order_is_that_of_the_readmes(site: Path) -> None:
    front = (site / "index.html").read_text(encoding="utf-8")
    [sidebar] = re.findall(r'<div class="sidebar-tree">.*?\n</div>', front, re.DOTALL)

    assert re.findall(r'class="caption-text">([^<]+)|href="([^"#]+)"', sidebar) == [
        ("Use it", ""),
        ("", "docs/orders.html"),
        ("Understand", ""),
        ("", "docs/decisions/README.html"),
        ("", "docs/decisions/0001-parcels.html"),
        ("Commands", ""),
        ("", "docs/site/reference/commands.html"),
        ("Python API", ""),
        ("", "docs/site/reference/shop.html"),
    ]


def test_a_public_name_in_a_docstring_or_an_annotation_is_a_link(site: Path) -> None:
    page = (site / "docs/site/reference/shop.html").read_text(encoding="utf-8")

    assert re.search(r'<a class="reference internal" href="#shop.Order"[^>]*><code', page)
    assert re.search(r'<em class="sig-param">.*<a class="reference internal" href="#shop.Order"', page)
    assert '<span class="pre">unpack()</span></code> is code' in page


def read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=20) as answer:
        return str(answer.read().decode())


def test_the_site_is_served_on_a_free_port_until_ctrl_c_and_built_again_when_a_page_has_changed(
    site: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.touch()
    # Stands for the build: it writes what it finds.
    script = f"""
from pathlib import Path
from docs.site.serving import Freshness, serve
site, tree = Path({str(site)!r}), Path({str(tmp_path)!r})
serve(site, 0, Freshness(tree, lambda: (site / "new.html").write_text((tree / "page.md").read_text())))
"""
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A child of a shell's background job ignores it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[0]
        try:
            front = read(address)
            page.write_text("changed", encoding="utf-8")
            changed = read(f"{address}new.html")
        finally:
            server.send_signal(signal.SIGINT)
            _, errors = server.communicate(timeout=20)

    assert "<title>" in front
    assert changed == "changed"

    assert (server.returncode, errors) == (0, "")
    assert address.startswith("http://127.0.0.1:")
