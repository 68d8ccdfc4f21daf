"""The directive `modules`: the files of a folder of a package with the first sentence of each, read from the sources."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]


def package_folder(package: str) -> Path:
    """The folder of a package's modules."""
    name = "tracework" if package == "tracework" else f"tracework_{package}"
    return ROOT / "packages" / package / "src" / name


def first_sentence(path: Path) -> str:
    """Of a module's docstring; of a C file, of its first comment. Empty where there is none."""
    text = path.read_text()
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    else:
        comment = re.match(r"/\*(.*?)\*/", text, re.DOTALL)
        text = re.sub(r"\n \*", "\n", comment[1]) if comment else ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[a-z0-9)`])[.] (?=[A-Z])", paragraph)[0].rstrip(".:")


def files_of(folder: Path) -> list[Path]:
    """The sources in a folder itself that say what they are."""
    found = sorted(p for p in folder.iterdir() if p.suffix in (".py", ".c") and not p.name.startswith("_version"))
    return [p for p in found if first_sentence(p)]


class Modules(SphinxDirective):
    """`{modules} capture/guards`, or `{modules} capture/csrc`: a definition list."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        package, _, rest = self.arguments[0].partition("/")
        folder = ROOT / "packages" / package / rest if rest.split("/")[0] == "csrc" else package_folder(package) / rest
        if not folder.is_dir():
            raise self.error(f"{self.arguments[0]!r} is no folder of a package")
        self.env.note_dependency(str(folder))
        entries = nodes.definition_list()
        for path in files_of(folder):
            self.env.note_dependency(str(path))
            text = nodes.definition("", nodes.paragraph(text=f"{first_sentence(path)}."))
            entries += nodes.definition_list_item("", nodes.term("", "", nodes.literal(text=path.name)), text)
        return [nodes.paragraph("", "", nodes.literal(text=self.arguments[0] + "/")), entries]


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("modules", Modules)
    return {"parallel_read_safe": True}
