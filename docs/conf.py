"""The site: Sphinx, furo and MyST. Nothing is fetched, neither while it is built nor while it is read."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

project = "tracework"
author = "the authors of tracework"
copyright = "the authors of tracework, BSD-3-Clause"
extensions = ["myst_parser", "module_list", "generated"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "tests"]
nitpicky = True

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4

smartquotes = False  # options begin with two dashes

html_theme = "furo"
html_title = "tracework"
html_copy_source = False
html_show_sourcelink = False
