"""How Sphinx builds these pages: ``make docs``. Its names are Sphinx's, which is why they are in lower case."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import reference  # noqa: E402 - it is beside this file

import provision  # noqa: E402

project, author, release = "clusterctl", "the clusterctl authors", provision.__version__
html_title = f"{project} {release}"
extensions = ["myst_parser", "sphinx_click"]
myst_enable_extensions = ["deflist"]
html_theme = "furo"
html_show_copyright = False
# Commands are copied from here: no dash or quote may change.
smartquotes = False
# Blocks without a language are what a terminal shows.
highlight_language = "text"
myst_heading_anchors = 3
exclude_patterns = ["reference.py"]

reference.write(HERE / "reference")
