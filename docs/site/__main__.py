"""`python -m docs.site`: builds the documentation as a site, and serves it on this machine.

Ends with 1 if a link or an anchor is dead, a page has no place in the reading order, or a public name has no
docstring or is not in the reference.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from docs.site.serving import Freshness, serve

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".local/docs"


def build(source: Path, output: Path, *options: str, builder: str = "html") -> int:
    """Build the site of the pages below a folder; returns the exit code, 0 if there was no warning."""
    try:
        from sphinx.cmd.build import build_main
    except ModuleNotFoundError as error:
        print(f"The package {error.name!r} is missing from {sys.executable}: run `make docs`.", file=sys.stderr)
        return 2
    # The commands of the reference say `python`, as somebody types them who has activated this environment.
    os.environ |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}
    settings = ["-c", str(Path(__file__).parent), "-d", str(output / "doctrees")]
    code: int = build_main(["-W", "-q", *settings, *options, "-b", builder, str(source), str(output / builder)])
    if code:
        # The next build would not read the pages again that have not changed since, and not find their errors.
        shutil.rmtree(output / "doctrees", ignore_errors=True)
    if code == 1:
        print("The site has errors: the lines above name each, and its place.", file=sys.stderr)
    return code


def build_again(output: Path) -> None:
    """Build in a new process, which imports the packages as they are now."""
    command = [sys.executable, "-m", "docs.site", "--build", "--output", str(output)]
    print("The sources have changed: building the site again", flush=True)
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m docs.site", description="Build the documentation as a site.")
    made.add_argument("--build", action="store_true", help="only build: do not serve it")
    made.add_argument(
        "--external", action="store_true", help="only check the links to other sites, over the network"
    )
    made.add_argument("--draw", action="store_true", help="only draw the diagrams, with npm and Chromium")
    made.add_argument("--port", type=int, default=0, help="the port to serve on (default: any free port)")
    made.add_argument("--output", type=Path, default=FOLDER, metavar="FOLDER", help="where to build")
    return made


def main(argv: Sequence[str]) -> int:
    """Build, and serve unless told otherwise; returns the exit code."""
    options = parser().parse_args(argv)
    if options.draw:
        from docs.site.drawing import draw_all

        return draw_all(ROOT)
    code = build(ROOT, options.output, builder="linkcheck" if options.external else "html")
    if code or options.external:
        return code
    site = options.output / "html"
    if options.build:
        print(f"The site is in {site}")
    else:
        serve(site, options.port, Freshness(ROOT, partial(build_again, options.output)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
