"""What the site makes of the tables of the packages: a page for each reason to break, and the directive `table-of`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer.main
from docutils import nodes
from sphinx.util.docutils import SphinxDirective
from tracework.break_pages import break_page
from tracework.cli import app as command_line
from tracework.config import ENVIRONMENT
from tracework.logs import LOGS
from tracework.modes import MODES
from tracework.options import OPTION_NAMES
from tracework_capture import BREAK_REASONS
from typer.core import TyperGroup, TyperOption

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "README.md"
BREAKS = Path(__file__).parent / "breaks"


COMMANDS = typer.main.get_group(command_line)


def write_break_pages(folder: Path) -> None:
    """A file for each id, which is left alone where it is as it would be written."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.md"):
        if old.stem not in BREAK_REASONS:
            old.unlink()
    for reason in BREAK_REASONS:
        page, text = folder / f"{reason}.md", break_page(reason)
        if not page.is_file() or page.read_text() != text:
            page.write_text(text)


def commands(group: TyperGroup, above: str = "tracework") -> Iterator[tuple[str, str]]:
    """What is written on a command line, and what it does, for each command of a group and of the groups in it."""
    for name, command in sorted(group.commands.items()):
        if isinstance(command, TyperGroup):
            yield from commands(command, f"{above} {name}")
            continue
        words = []
        for parameter in command.params:
            word = max(parameter.opts, key=len) if isinstance(parameter, TyperOption) else str(parameter.name).upper()
            words += [word if parameter.required else f"[{word}]"] if word != "--help" else []
        yield f"`{' '.join((above, name, *words))}`", " ".join((command.help or "").split())


def measured(model: str) -> Iterator[tuple[str, ...]]:
    """Of a model: machine, step, eager's time, what torch.compile and this compiler are over it, and their first calls."""
    machine = step = ""
    columns: list[str] = []
    for line in RESULTS.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if re.match(r".*, torch \d", line):
            machine = line.partition(", torch")[0]
        elif re.match(r"(Inference|Training)(, batch \d+)?:", line):
            step = line.rstrip(":").lower()
        elif cells[0] == "model":
            columns = cells
        elif cells[0] == model and step:
            row = dict(zip(columns, cells, strict=True))
            calls = row.get("first call s", "-, -").replace("-, -", "not measured")
            yield (machine, step, *(row[name] for name in ("eager ms", "torch.compile", "tracework")), calls)


def as_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Markdown."""
    lines = [head, ("---",) * len(head), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _default(value: object) -> str:
    return f"`{value!r}`" if value != "" else ""


TABLES: Mapping[str, Callable[[], str]] = {
    "options": lambda: as_table(
        ("option", "type", "default", "meaning"),
        ((f"`{r.name}`", f"`{r.type}`", _default(r.default), r.doc) for r in OPTION_NAMES.values()),
    ),
    "modes": lambda: as_table(
        ("mode", "stands for the options"), ((f"`{mode}`", f"`{dict(row)}`") for mode, row in MODES.items())
    ),
    "variables": lambda: as_table(
        ("variable", "torch's names of it", "meaning"),
        ((f"`{name}`", ", ".join(f"`{other}`" for other in row.torchs), row.doc) for name, row in ENVIRONMENT.items()),
    ),
    "logs": lambda: as_table(("log", "shows"), ((f"`{name}`", said) for name, (_, said) in LOGS.items())),
    "commands": lambda: as_table(("command", "does"), commands(COMMANDS)),
    "gpt2": lambda: as_table(
        ("machine", "step", "eager, ms", "torch.compile", "tracework", "first call, s: tracework, torch.compile"),
        measured("gpt2"),
    ),
    "breaks": lambda: as_table(
        ("id", "what", "what to do"),
        (
            (f"[`{name}`](breaks/{name}.md)", row.what.replace("__", "\\_\\_"), row.cure.replace("__", "\\_\\_"))
            for name, row in BREAK_REASONS.items()
        ),
    ),
}


class TableOf(SphinxDirective):
    """`{table-of} options`: a table of the packages."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        if self.arguments[0] not in TABLES:
            raise self.error(f"there is no table {self.arguments[0]!r}: {', '.join(TABLES)}")
        return self.parse_text_to_nodes(TABLES[self.arguments[0]]())


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""

    def write(_: Sphinx, __: Config) -> None:
        write_break_pages(BREAKS)

    app.connect("config-inited", write)
    app.add_directive("table-of", TableOf)
    return {"parallel_read_safe": True}
