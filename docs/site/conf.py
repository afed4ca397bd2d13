"""The settings of the documentation as a site: `make docs` builds and serves it.

The source folder is the repository: its Markdown pages are the site's, with README.md in front.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(ROOT / folder) for folder in (".", *(f"packages/{name}/src" for name in ("inbox", "outbox", "emulators")))
]

# Found by the path above.
from docs.site.chapters import NOT_ON_THE_SITE, README  # noqa: E402
from docs.site.public_names import MODULES  # noqa: E402

project = "Outbox Relay"
root_doc = README
language = "en"
highlight_language = "text"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinxcontrib.programoutput",
    "docs.site.order",
    "docs.site.links",
    "docs.site.diagrams",
    "docs.site.reference",
    "docs.site.pytest_plugin",
]

# The pages that tests/support/pages.py names, and the reference.
include_patterns = [
    *("*.md", "*/README.md", "packages/*/README.md", "outbox_relay/*/README.md", "verification/*/README.md"),
    *("docs/*.md", "docs/**/*.md", "local/*/README.md", "tests/*/README.md"),
    *("packages/emulators/docs/*.md", "packages/emulators/docs/**/*.md"),
    "docs/site/reference/*.rst",
]
exclude_patterns = [".*", "**/node_modules", *NOT_ON_THE_SITE]

# GitHub's anchors: a link that works there works on the site.
myst_heading_anchors = 6
myst_enable_extensions = ["html_image"]
suppress_warnings = [
    # The examples shorten JSON and output with `…`, which no lexer knows.
    "misc.highlighting_failure",
    # chapters.py names the remedy as well.
    "toc.not_included",
]

# The repository's address: links to source files lead there. Without one, the site has copies of these files.
repository_url = os.environ.get("DOCS_REPOSITORY") or "/".join(
    filter(None, (os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")))
)

reference_modules = list(MODULES)
command_pages = ["docs/site/reference/commands"]
reference_pages = [
    f"docs/site/reference/{page}" for page in ("outbox", "inbox", "changefeed", "emulators", "pytest_plugin")
]

# Docstrings quote code as Markdown does: a name of the reference becomes a link, anything else stays code.
default_role = "py:obj"
nitpicky = True
# Every name of these packages in an annotation is public, except type variables and what a user passes on without
# looking inside.
nitpick_ignore_regex = [
    ("py:obj", r"(.|\n)*"),
    ("py:class", r".*\.(E|E_co|T|T_co|ConnectionT|ResultT)"),
    ("py:class", r"outbox_relay\.changefeed\.statements\.(Dialect|Statement|Result)"),
    ("py:class", r"outbox_relay\.inbox\.(stores\.port\.Turn|event_loop\.Stoppable)"),
    ("py:class", r"outbox_relay\.inbox\.stores\.sql\.dialects\.(Statement|Result)"),
    ("py:class", r"outbox_relay\.emulators\.servicebus\.(authorization\.AuthorizationRule|entity_types\.\w+)"),
]
add_module_names = False
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autoclass_content = "both"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

# Commands are copied without their prompt, and output, which has no language, not at all.
copybutton_prompt_text = "$ "
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"

# Addresses of this machine are no links to other sites. GitHub adds the anchors of a page by script.
linkcheck_ignore = [r"https?://(127\.0\.0\.1|localhost)[:/]"]
linkcheck_anchors_ignore_for_url = [r"https://github\.com/.*"]

html_theme = "furo"
html_title = project
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(ROOT / "docs/site/scorer.js")
html_favicon = "../../packages/operator/src/outbox_relay/operator/console/static/icon.svg"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = (
    {
        "source_view_link": f"{repository_url}/blob/HEAD/{{filename}}",
        "source_edit_link": f"{repository_url}/edit/main/{{filename}}",
    }
    if repository_url
    else {}
)
