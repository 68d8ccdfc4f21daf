"""report(): of a call and of a block; ten lines, data of a schema that holds, a page that needs nothing else."""

import json
import re
from html.parser import HTMLParser

import pytest
import torch
import tracework
from tracework import activity, observe
from tracework.reports import document, recorder
from tracework.reports.text import LINES


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 8, 3), torch.nn.Linear(8, 4)

    def forward(self, x):
        x = torch.relu(self.first(x)) + 1
        x = x.mean((2, 3))
        return torch.softmax(self.second(x), -1)


SCHEMA = {
    "": "schema version what made versions machine graphs breaks recompiles stored plain uncompiled between compiled"
    " compile_time memory budgets guard_costs summary",
    "summary": "graphs operations breaks recompiles uncompiled guards kernels library bytes flops peak_bytes one_by_one_peak_bytes"
    " compile_seconds us limit_us",
    "graphs": "number function file line operations inputs symbols conditions guards guards_by_kind ended text",
    "compiled": "number function role devices sizes kernels refused unrecorded fallbacks memory buffers inputs static_inputs outputs us calls limit_us"
    " code texts",
    "kernels": "number name kind ops lines bytes flops bytes_of_sizes flops_of_sizes dtype reads writes why_library us limit_us bound",
    "lines": "file line function operator source",
    "compile_time": "seconds stages functions",
}
"""Version 1: what is here stays."""


@pytest.fixture(scope="module")
def profiled():
    with torch.no_grad():
        return tracework.report(Net(), profile=True)(torch.rand(2, 3, 16, 16))


def test_the_schema(profiled):
    found = json.loads(json.dumps(profiled.json()))
    (compiled,), (graph,) = found["compiled"], found["graphs"]
    rows = {"": found, "summary": found["summary"], "compile_time": found["compile_time"], "compiled": compiled, "graphs": graph}
    rows |= {"kernels": compiled["kernels"][0], "lines": compiled["kernels"][0]["lines"][0]}
    assert (found["schema"], found["version"]) == ("tracework.report", 1)
    assert {name: " ".join(row) for name, row in rows.items()} == SCHEMA


def test_every_kernel_has_its_lines_bytes_operations_and_time(profiled):
    (compiled,) = profiled.json()["compiled"]
    assert compiled["role"] == "inference" and compiled["function"] == "Net" and len(compiled["kernels"]) > 2
    for step in compiled["kernels"]:
        assert step["lines"] and all(line["file"] == __file__ and line["source"] for line in step["lines"])
        assert step["bytes"] > 0 and step["flops"] is not None and step["us"] > 0 and 0 < step["limit_us"] <= step["us"]
    assert sum(step["us"] for step in compiled["kernels"]) < compiled["us"]
    operators = {line["operator"] for step in compiled["kernels"] for line in step["lines"]}
    assert {"relu", "mean", "softmax"} <= operators
    products = 2 * 2 * 8 * 14 * 14 * 27 + 2 * 2 * 8 * 4
    assert products <= sum(step["flops"] for step in compiled["kernels"]) < 1.2 * products


def test_what_is_kept_for_the_backward_by_budgets(tmp_path):
    net, x = Net(), torch.rand(2, 3, 16, 16)
    trained = tracework.report(net)(x)
    (row,) = json.loads(json.dumps(trained.json()))["budgets"]
    points = row["points"]
    assert [point["budget"] for point in points] == sorted({point["budget"] for point in points}, reverse=True)
    assert points[0]["bytes"] > points[-1]["bytes"] and points[0]["time"] == 1.0 < points[-1]["time"]
    assert "kept for the backward: " in str(trained) and len(str(trained).splitlines()) <= LINES
    page = trained.save(tmp_path / "found.html").read_text()
    assert 'id="budgets"' in page and page.count("<circle") == len(points)


def test_guards_of_a_module_are_measured(profiled):
    (cost,) = profiled.json()["guard_costs"]
    assert cost["guards"] > 10 and cost["us"] > 0 and len(cost["dearest"]) == 3


def test_what_comes_from_the_cache_is_known_as_well():
    net, x = Net(), torch.rand(2, 3, 16, 16)
    with torch.no_grad():
        first, again = (tracework.report(net)(x).json() for _ in range(2))

    def rows(found):
        return [{n: v for n, v in step.items() if n != "us"} for step in found["compiled"][0]["kernels"]]

    assert rows(first) == rows(again)


def breaks(x):
    y = (x @ x).sin()
    tracework.graph_break()
    return y.cos()


def masked(text):
    text = re.sub(r"at \S*test_reporting.py:\d+", "at FILE", re.sub(r"on .*, torch .*", "on MACHINE", text))
    return re.sub(r"guards: \d+", "guards: N", re.sub(r" \d+\.\d\d(?=,|$| s:)", " N", text))


TEN_LINES = """\
breaks on MACHINE
graphs: 2 (3 operations), breaks: 1, recompiles: 0, uncompiled: 0, guards: N
break at FILE (explicit): graph_break() was called; try: remove the call
kernels: 2 own, 1 of the library; 7.17 kB moved, 8.70 kFLOP computed
memory: 2.05 kB at most; operators one by one 2.05 kB
compiled in N s: capture N, aotautograd N, primops N, inductor N, runtime N"""


def test_ten_lines():
    x = torch.rand(16, 16)
    found = tracework.report(breaks)(x)
    torch.testing.assert_close(found.result, breaks(x))
    assert len(str(found).splitlines()) <= LINES and masked(str(found)) == TEN_LINES


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.links, self.ids = [], set(), set()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        given = dict(attributes)
        self.ids |= {given["id"]} if "id" in given else set()
        self.links |= {value for name, value in given.items() if name in ("href", "src")}


def test_a_block_writes_a_page_that_needs_nothing_else(tmp_path):
    file = tmp_path / "found.html"
    with tracework.report(file) as found:
        tracework.compile(breaks)(torch.rand(4, 4, requires_grad=True)).sum().backward()
    page = Page()
    page.feed(file.read_text())
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert page.tags.count("svg") >= 2 * len(found.json()["compiled"]) and not {"link", "img", "iframe"} & set(page.tags)
    roles = [(each["role"], each["function"].partition(" ")[0]) for each in found.json()["compiled"]]
    assert sorted(roles) == [("backward", "breaks")] * 2 + [("forward", "breaks")] * 2  # before and after the break
    found.save(tmp_path / "found.json")
    assert json.loads((tmp_path / "found.json").read_text())["summary"]["breaks"] == 1


def test_nothing_listens_outside_of_the_block():
    with tracework.report() as found:
        assert len(observe._watchers) == len(activity._watchers) == 1
    assert observe._watchers == activity._watchers == []
    assert "nothing was compiled" in str(found)
    tracework.compile(lambda x: x + 1)(torch.ones(3))
    assert found.json()["graphs"] == []


def test_what_is_neither_a_function_nor_a_file_is_refused():
    with pytest.raises(tracework.NotCallable, match="takes a function"):
        tracework.report(3)
    with pytest.raises(tracework.NotCallable, match="dynamic"):
        tracework.report("file.html", dynamic=True)


def test_open_sizes_are_counted_for_those_of_the_first_call():
    found = tracework.report(lambda x: x.exp(), dynamic=True, profile=True)(torch.ones(6, 5)).json()
    ((step,),) = [each["kernels"] for each in found["compiled"]]
    assert step["bytes"] == 2 * 30 * 4 and step["flops"] == 30 and "s" in step["bytes_of_sizes"] and step["us"] > 0
    assert found["compiled"][0]["memory"] == {"steps": [120], "one_by_one": [120]}


def test_a_report_that_is_looked_at_in_its_block_goes_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with tracework.report("<b>.html") as found:
        tracework.compile(lambda x: x + 1)(torch.ones(3))
        assert found.json()["summary"]["graphs"] == 1
        monkeypatch.chdir("elsewhere")
        tracework.compile(lambda x: x + 2)(torch.ones(3))
    assert found.json()["summary"]["graphs"] == 2 and max(map(len, str(found).split("\n")[:-1])) <= 120
    names = re.findall(' id="([^"]*)"', (tmp_path / "<b>.html").read_text())
    assert len(names) == len({*names}) > 4


def test_what_a_block_raises_is_more_than_a_page_that_cannot_be_written(tmp_path):
    with pytest.warns(RuntimeWarning, match="report: "), pytest.raises(KeyError), tracework.report(tmp_path):
        raise KeyError
    with pytest.raises(tracework.InvalidArgument, match="cannot be written"):
        tracework.report(tmp_path / "no" / "r.html")


def test_a_part_that_fails_does_not_fail_the_program(monkeypatch, tmp_path):
    def fails(*args, **kwargs):
        raise ValueError("no")

    monkeypatch.setattr(recorder, "Compiled", fails)
    with pytest.warns(RuntimeWarning, match="a part is missing: ValueError: no"), tracework.report(tmp_path / "r.html"):
        assert tracework.compile(lambda x: x + 1)(torch.ones(2)).tolist() == [2, 2]
    monkeypatch.setattr(document, "document", fails)
    with pytest.warns(RuntimeWarning, match="report: no"), tracework.report(tmp_path / "r.html"):
        pass


def test_what_runs_as_it_is_is_in_the_report():
    found = tracework.report(lambda x: x[x > 0].sum() + x.sin())(torch.ones(3))
    assert any("runs as it is" in text and "test_reporting.py" in text for text in found.json()["between"])
