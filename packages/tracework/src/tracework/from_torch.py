"""`python -m tracework.from_torch`: what becomes of each name of torch.compile's, as the tables say it; FROM_TORCH.md is its output."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping

from . import compiler
from .modes import MODES
from .torch_logs import TORCH_LOG_ROWS
from .torch_names import HONOURED, Row, TorchName, row_for, torch_names
from .torch_options import EXTRA, TORCH_OPTIONS
from .torch_settings import MODULES, TORCH_SETTINGS, row_of_variable

MARKS: Mapping[str, str] = {
    "mark_dynamic, maybe_mark_dynamic": "as tracework.compiler's",
    "mark_unbacked": "as tracework.compiler's; bounds and groups, too",
    "mark_static, mark_static_address": "as tracework.compiler's",
    "torch.compiler.disable, allow_in_graph, disallow_in_graph, forbid_in_graph": "as tracework.compiler's",
    "torch.compiler.assume_constant_result, nonstrict_trace, substitute_in_graph": "as tracework.compiler's",
    "torch.compiler.set_stance": "holds while tracework.compiler.set_stance has set none",
    "torch.compiler.is_compiling, is_dynamo_compiling, is_exporting": "true in what is captured here, too",
    "torch._dynamo.exc.Unsupported, RecompileError, FailOnRecompileLimitHit, BackendCompilerFailed": "catch our own errors of the same meaning",
    "torch.fx.experimental.symbolic_shapes.ConstraintViolationError": "catches that a marked size cannot stay open",
}
"""What a program sets or asks with torch's own functions, while this compiler runs."""


def row_of_name(name: str) -> Row:
    """What `tracework.compiler` has under a public name of torch.compiler's."""
    named = getattr(compiler, name)
    module = getattr(named, "__module__", "tracework")  # of a namespace, as precompile, there is none
    meaning = (inspect.getdoc(named) or "").split("\n\n")[0] if module.startswith("tracework") else "torch's own"
    return Row(name, HONOURED, f"tracework.compiler.{name}", " ".join(meaning.split()).rstrip("."))


def document() -> str:
    """The text of FROM_TORCH.md."""
    modes = [
        Row(mode, HONOURED, ", ".join(f"{k}={v}" for k, v in options.items()) or "no option") for mode, options in MODES.items()
    ]
    settings = {name: known for kind in reversed(MODULES) for name, known in torch_names(kind).items()}
    return "\n".join(
        [
            "# From torch.compile",
            "",
            "`python -m tracework.from_torch` wrote this. A name is *honoured*: by what of ours; *not needed*: it could only change speed, memory or",
            "what is printed, or what it asks for holds in any case (an option is taken with one warning that lists all such names, a variable or field",
            "without, but one that would give other results than eager's with one); *refused*: it asks for other values, promises something, calls",
            "your code or writes files, which nothing here does: an error where a value asks for it. Releases of torch are given where not all from",
            "2.11 to 2.15 have the name.",
            "",
            *_section("Names of torch.compiler", torch_names("name"), row_of_name),
            *_section("Modes", dict.fromkeys(MODES), {row.name: row for row in modes}.get),
            *_section("Options", {**torch_names("option"), **dict.fromkeys(EXTRA)}, lambda name: row_for(TORCH_OPTIONS, name)),
            "What a program sets in `torch._inductor.config` counts as such an option.",
            "",
            *_section("Fields of torch's config modules", settings, lambda name: row_for(TORCH_SETTINGS, name)),
            f"Of {', '.join(MODULES.values())}.",
            "Sizes, limits and errors are read before each compilation, the others at each `compile()`. `tracework.compiler.config` has those of",
            "torch.compiler.config for this compiler alone.",
            "",
            *_section("Environment variables", torch_names("variable"), row_of_variable),
            *_section("Names of TORCH_LOGS", torch_names("log"), TORCH_LOG_ROWS.get),
            "## Marks, stances, questions and errors",
            "",
            "| torch | here |",
            "|---|---|",
            *(f"| {names} | {here} |" for names, here in MARKS.items()),
            "",
        ]
    )


def _section(title: str, names: Mapping[str, TorchName | None], row: Callable[[str], Row | None]) -> Iterable[str]:
    yield from (f"## {title}", "", "| name | answer | by | what to know | torch |", "|---|---|---|---|---|")
    for name, known in sorted(names.items()):
        found = row(name)
        if found is not None:
            releases = ", ".join(known.releases) if known is not None else ""
            yield "|".join(
                ("", *(f" {cell} " if cell else " " for cell in (name, found.answer, found.target, found.reason, releases)), "")
            )
    yield ""


if __name__ == "__main__":
    print(document(), end="")
