"""Writes packages/capture/docs/graph_breaks.md from BREAK_REASONS and CALLS, and the golden texts of breaks that its tests compare with.

python tools/run_in_tree.py python tools/break_reasons.py
"""

import inspect
import sys
from pathlib import Path

CAPTURE = Path(__file__).resolve().parent.parent / "packages" / "capture"
TESTS = CAPTURE / "tests" / "unit" / "controls"
HEAD = """# Graph breaks

Where a program cannot be captured, the graph ends, the instruction runs as plain Python, and another graph starts after it. Each such
break has a stable id, which `Unsupported.reason_id`, `explain(fn)(*args).breaks` and the log `tracework.capture.breaks` show together with
the source line. With `fullgraph=True`, or inside of `error_on_graph_break(True)`, a break is an error.

This page is made from `BREAK_REASONS` in `tracework_capture/errors.py` and the rows of `CALLS` by `tools/break_reasons.py`.
"""


def page() -> str:
    """The text of the page."""
    import break_programs
    from tracework_capture.errors import page_of_reasons
    from tracework_capture.values.protocol.calls import calls_that_break

    programs = {reason: inspect.getsource(program) for reason, program in break_programs.PROGRAMS.items()}
    return f"{HEAD}\n{page_of_reasons(programs, calls_that_break())}"


def main() -> None:
    sys.path.insert(0, str(TESTS))
    import break_programs
    from test_breaks import raised, shown

    (CAPTURE / "docs" / "graph_breaks.md").write_text(page())
    golden = "".join(f"== {reason}\n{shown(raised(reason))}" for reason in break_programs.PROGRAMS)
    (TESTS / "golden" / "breaks.txt").write_text(golden)


if __name__ == "__main__":
    main()
