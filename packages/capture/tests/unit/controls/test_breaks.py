"""Graph breaks as data and as text: ids are a closed table, each has a place, a reason and a cure, and explain() lists them.

`python tools/break_reasons.py` writes the golden text and the page of reasons anew.
"""

import ast
import json
import re
import textwrap
import time
from pathlib import Path

import break_programs
import pytest
import torch
import tracework_capture as capture
from tracework_capture import errors
from tracework_capture.contracts import PlainFrame
from tracework_capture.hook.compile_frame import not_continued
from tracework_capture.plan import Stop
from tracework_capture.values.protocol.calls import calls_that_break

SOURCES = Path(capture.__file__).parent
FOR_IDS_WITHOUT_A_ROW = "other"


def ids_in_source():
    """Every literal first argument of break_graph() and BreakGraph()."""
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(getattr(node, "func", None), "attr", getattr(getattr(node, "func", None), "id", ""))
            if name in ("break_graph", "BreakGraph") and node.args:
                first = node.args[0]
                for value in [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]:
                    if isinstance(value, ast.Constant):
                        yield value.value, f"{path.name}:{node.lineno}"


def test_every_reason_that_is_given_has_a_row():
    unknown = {reason: place for reason, place in ids_in_source() if reason not in errors.BREAK_REASONS}
    assert not unknown


def test_every_row_is_given_somewhere():
    given = {reason for reason, _ in ids_in_source()} | calls_that_break().keys()
    assert set(errors.BREAK_REASONS) <= given | {FOR_IDS_WITHOUT_A_ROW}


def test_an_id_without_a_row_is_kept_in_the_detail():
    """Somebody else's value or handler may give an id of its own."""
    error = errors.BreakGraph("gamma_ray", "a bit was flipped")
    assert error.reason_id == FOR_IDS_WITHOUT_A_ROW and error.detail == "gamma_ray: a bit was flipped"


def raised(reason):
    with pytest.raises(errors.Unsupported) as caught:
        capture.optimize(lambda gm, inputs: gm.forward, fullgraph=True)(break_programs.PROGRAMS[reason])(break_programs.X)
    return caught.value


def golden():
    """Reason id -> text."""
    text = (Path(__file__).parent / "golden" / "breaks.txt").read_text()
    return dict(part.split("\n", 1) for part in re.split(r"^== ", text, flags=re.MULTILINE)[1:])


def shown(error):
    """The text without what depends on the machine and on the version of torch."""
    text = str(error).replace(str(Path(break_programs.__file__).parent), "...").replace(str(Path(torch.__file__).parent), "torch")
    text = text.replace("RuntimeError: mm: mat1", "RuntimeError: mat1")  # from torch 2.15 on with the operator's name
    return re.sub(r"at (torch/.*\.py):\d+", r"at \1", text) + "\n\n"


@pytest.mark.parametrize("reason", break_programs.PROGRAMS)
def test_the_text_of_a_break(reason):
    error = raised(reason)
    assert error.reason_id == reason
    assert shown(error) == golden()[reason]


def test_the_page_has_every_reason():
    sections = errors.page_of_reasons({"explicit": "graph_break()\n"}, {"serialization": ["torch.save"]}).split("## ")[1:]
    assert [section.split("\n")[0] for section in sections] == list(errors.BREAK_REASONS)
    assert all(row.what in s and row.why in s and row.cure in s for s, row in zip(sections, errors.BREAK_REASONS.values()))
    assert "```python\ngraph_break()\n```" in next(s for s in sections if s.startswith("explicit\n"))
    assert "So break calls of `torch.save`." in next(s for s in sections if s.startswith("serialization\n"))


def test_every_reason_and_every_call_that_always_breaks_is_on_the_page():
    page = (Path(__file__).parents[3] / "docs" / "graph_breaks.md").read_text()
    assert re.findall(r"^## (.*)", page, re.MULTILINE) == list(errors.BREAK_REASONS)
    assert calls_that_break().keys() <= errors.BREAK_REASONS.keys()
    assert all(f"`{name}`" in page for names in calls_that_break().values() for name in names)


def helper(t):
    return t + 1


def several(x):
    y = x * 2
    capture.graph_break("first")
    for n in (3, 4, 5):
        y = y + helper(torch.ones(n)).sum()
    return y


class TestExplain:
    """explain(fn)(*args) as data and as text."""

    def test_breaks_have_place_and_cure(self):
        found = capture.explain(several)(torch.ones(2))
        (stop,) = found.breaks
        assert (stop.reason_id, stop.detail, stop.place.function) == ("explicit", "first", "several")
        assert '    capture.graph_break("first")\n    ^^^^' in stop.report() and "try: remove the call" in stop.report()
        assert stop.report() in str(found)

    def test_breaks_before_anything_was_computed_count(self):
        """Nothing is compiled for what is before them, and with fullgraph=True they are errors as others are."""
        found = capture.explain(break_programs.tensor_to_python)(break_programs.X)
        assert [graph.stop for graph in found.graphs] == [*found.breaks, capture.Returned()]
        found = capture.explain(lambda x: x * time.perf_counter())(break_programs.X)
        assert [stop.reason_id for stop in found.breaks] == ["call_unknown"] and len(found.graphs) == 1
        assert "perf_counter()" in found.as_dict()["breaks"][0]["source"]

    def test_frames_that_could_not_be_continued_name_the_break(self):
        skip = not_continued("a reason", Stop(0, errors.BreakGraph("explicit", "half"), (errors.UserLocation("f.py", 3, "f"),)))
        found = capture.Explanation(skipped=[PlainFrame("f", skip.detail, skip.stop, "f.py", 1)])
        assert "plain: f (f.py:1): a reason\n  because of a break: graph_break() was called\n  at f.py:3 in f\n" in str(found)
        assert found.as_dict()["plain"][0]["break"]["detail"] == "half"

    def test_recompiles_say_which_guard_failed(self):
        def calls(x):
            capture.skip_frame()
            return [helper(torch.ones(n)) for n in (3, 4, 5)]

        found = capture.explain(calls)(torch.ones(2))
        (recompile,) = found.recompiles
        assert recompile.name == "helper" and "t has size 4 in dim 0, had 3" in recompile.reasons[0]
        assert recompile.cures == ("mark_dynamic(t, 0) before the first call, or dynamic=True",)
        assert f"  cure: {recompile.cures[0]}" in str(found) and found.as_dict()["recompiles"][0]["cures"] == [*recompile.cures]
        assert found.summary() == "2 graph(s), 2 operation(s), 0 break(s), 1 recompile(s), 1 frame(s) run as plain Python"

    def test_everything_is_plain_data(self):
        data = json.loads(json.dumps(capture.explain(several)(torch.ones(2)).as_dict()))
        assert [graph["stop"] for graph in data["graphs"]][:1] == ["explicit"]
        assert any("TENSOR x float32[2] on cpu" in guard for guard in data["graphs"][0]["guards"])
        assert data["breaks"][0]["cure"] == errors.BREAK_REASONS["explicit"].cure


OTHER = errors.UserLocation(__file__, 3, "other", 0, 9)
PLACE = errors.UserLocation(__file__, 1, "place", 3, 6)


def test_a_break_inside_of_a_library_shows_the_program_s_own_line():
    library = [errors.UserLocation(textwrap.__file__, 400 + n, "dedent") for n in range(12)]
    for stack in ((PLACE, library[0]), (OTHER, PLACE, library[0]), (OTHER, PLACE, *library)):
        text = errors.describe_break("call_unknown", "", stack)
        assert f"  called from {PLACE}\n{errors.excerpt(PLACE)}" in text and text.count("^^^") == 1
    assert "... 4 more callers" in text
    assert errors.describe_break("call_unknown", "", (OTHER, PLACE)).count("^^^") == 1


def test_the_text_of_a_tensor_with_a_history_is_no_output():
    """It names the function that autograd has for the tensor."""
    (stop,) = capture.explain(lambda x: f"{x + 1}")(torch.ones(2, requires_grad=True)).breaks
    assert stop.reason_id == "tensor_to_python" and "text of tensor" in stop.detail


def too_deep(x, n=400):
    return x if n == 0 else too_deep(x + 1, n - 1)


def test_nothing_stays_entered_when_python_runs_out_of_stack():
    """An exit of a mode may fail, too, when the stack is full: captures after it must not be inside of it."""
    for limit in range(3):
        explained = capture.explain(lambda x, n: too_deep(x, n))(break_programs.X, 300 + limit)
        assert torch.equal(explained.result, break_programs.X + 300 + limit)
        assert torch._C._len_torch_dispatch_stack() == 0
        assert type(torch.ones(1)) is torch.Tensor
