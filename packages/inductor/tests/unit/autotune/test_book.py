"""The tuning database: what is written is found again, whatever else lies there."""

import concurrent.futures
import itertools
import json
import subprocess
import sys
import warnings

import pytest
from tracework_inductor.autotune import book as books
from tracework_inductor.autotune.book import Book, BookWarning, Row, merged, rows_of_lines
from tracework_inductor.autotune.record import Candidate, Problem
from tracework_runtime import Store
from tracework_runtime.cache.store import MemoryStore

PROBLEM = Problem("dot", (("x", 4096), ("y", 16), ("r", 768)), ("bfloat16",) * 3, ("01/16",) * 3, "H200", bytes=10, operations=20)
OTHER = Problem("pointwise", (("x", 4096),), ("float32",) * 2, ("0/16",) * 2, "H200")
LIBRARY = Candidate("extern", measured_us=12.5, predicted_us=11.0)
OURS = Candidate("dot", {"constants": {"XBLOCK": 64, "YBLOCK": 16}, "num_warps": 4, "num_stages": 3}, "one part", 9.0, 8.5)
BROKEN = Candidate("dot", {"constants": {"XBLOCK": 512, "YBLOCK": 16}, "num_warps": 4, "num_stages": 3}, reason="it spills")
TRITON = books.triton_version()


def row(problem=PROBLEM, candidates=(OURS, LIBRARY, BROKEN), triton=TRITON):
    return Row(problem.facts(), tuple(candidates), triton)


def test_a_row_is_one_line_that_gives_it_back():
    line = row().line()
    assert "\n" not in line and Row.from_line(line).line() == line and Row.from_line(line).candidates == (OURS, LIBRARY, BROKEN)


def test_amounts_of_work_are_no_part_of_the_key():
    assert PROBLEM == Problem(*(getattr(PROBLEM, n) for n in ("kind", "sizes", "dtypes", "layouts", "device")))
    assert len({p.key for p in (PROBLEM, OTHER)}) == 2


DAMAGED = {
    "no JSON": "{",
    "half a line": row().line()[:40],
    "a list": "[]",
    "no format": "{}",
    "a text for a format": '{"format": "1"}',
    "no problem": json.dumps({"format": 1, "candidates": [{"way": "dot"}], "triton": "3"}),
    "no candidates": json.dumps({"format": 1, "problem": {}, "candidates": [], "triton": "3"}),
    "a candidate without a way": json.dumps({"format": 1, "problem": {}, "candidates": [{}], "triton": "3"}),
    "an unknown field": json.dumps({"format": 1, "problem": {}, "candidates": [{"way": "dot", "more": 1}], "triton": "3"}),
    "a time that is none": json.dumps(
        {"format": 1, "problem": {}, "candidates": [{"way": "dot", "measured_us": "1"}], "triton": "3"}
    ),
    **{
        f"config {config}": json.dumps(
            {"format": 1, "problem": {}, "candidates": [{"way": "dot", "config": config}], "triton": "3"}
        )
        for config in (3, {"constants": 3}, {"constants": {"X": 0}}, {"constants": {"X": "1"}}, {"num_warps": True}, {"code": 1})
    },
    "deep": "[" * 100000,
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_line_is_told_and_costs_no_other(what):
    lines = [row().line(), DAMAGED[what], "", row(OTHER).line()]
    with pytest.warns(BookWarning, match="mine.jsonl:2: ") as told:
        assert [r.problem["kind"] for r in rows_of_lines(lines, "mine.jsonl")] == ["dot", "pointwise"]
    assert len(told) == 1


def test_rows_of_another_format_are_left_out_in_silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not list(rows_of_lines([json.dumps({**json.loads(row().line()), "format": 2})], "mine"))


def test_rows_of_another_triton_do_not_count():
    found = {r.key: r for r in (row(triton="2.0.0"),)}
    assert Book(found).ours(PROBLEM) == () and Book({r.key: r for r in (row(),)}).ours(PROBLEM)[0] == OURS


def test_merging_keeps_the_quicker_row_in_one_order():
    slow, quick = row(candidates=(LIBRARY,)), row()
    given = [slow, row(OTHER, (OURS.replace(measured_us=None),)), quick, row(triton="2.0.0")]
    orders = {tuple(r.line() for r in merged([some])) for some in itertools.permutations(given)}
    assert len(orders) == 1
    (lines,) = orders
    assert quick.line() in lines and slow.line() not in lines and len(lines) == 3


def test_what_ships_can_be_read():
    books.shipped.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Book().ours(PROBLEM) == ()


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_what_was_measured_is_found_again(place, tmp_path):
    store = Store(tmp_path / "c") if place == "disk" else MemoryStore()
    book = Book({}, store)
    assert book.measured(PROBLEM) == ()
    book.keep(PROBLEM, (OURS, LIBRARY))
    again = Book({}, Store(tmp_path / "c") if place == "disk" else store)
    assert again.measured(PROBLEM) == (OURS, LIBRARY) and again.measured(OTHER) == () == again.ours(PROBLEM)


def test_without_a_store_nothing_is_kept():
    book = Book({})
    book.keep(PROBLEM, (OURS,))
    assert book.measured(PROBLEM) == ()


@pytest.mark.parametrize("content", [b"{", row(OTHER).line().encode(), b"\xff"], ids=["damaged", "another problem's", "bytes"])
def test_an_entry_that_cannot_be_used_goes_and_is_made_again(content, tmp_path):
    store = Store(tmp_path / "c")
    book = Book({}, store)
    book.keep(PROBLEM, (OURS,))
    ((kind, key, suffix),) = store.used
    store.put(kind, key, content, suffix)
    assert book.measured(PROBLEM) == () and store.get(kind, key, suffix) is None
    book.keep(PROBLEM, (LIBRARY,))
    assert book.measured(PROBLEM) == (LIBRARY,)


def test_what_is_kept_comes_in_one_order_and_without_what_is_damaged(tmp_path):
    store = Store(tmp_path / "c")
    book = Book({}, store)
    for problem in (PROBLEM, OTHER):
        book.keep(problem, (OURS,))
    expected = sorted(Row(p.facts(), (OURS,), TRITON).key for p in (PROBLEM, OTHER))
    assert [r.key for r in books.kept(store)] == expected
    store.put(books.KIND, store.keys(books.KIND)[0], b"{")
    assert len(books.kept(store)) == 1 and books.kept(Store(tmp_path / "d")) == []


WRITER = """
import sys
from tracework_inductor.autotune.book import Book
from tracework_inductor.autotune.record import Candidate, Problem
from tracework_runtime import Store
book = Book({}, Store(sys.argv[1]))
for n in range(40):
    problem = Problem("dot", (("x", n),), (), (), "H200")
    book.keep(problem, (Candidate("dot", {}, measured_us=float(sys.argv[2])),))
    assert len(book.measured(problem)) == 1
"""


def test_processes_may_write_the_same_rows_at_once(tmp_path):
    def write(n):
        return subprocess.run(
            [sys.executable, "-c", WRITER, str(tmp_path / "c"), str(n)], capture_output=True, text=True, timeout=200
        )

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        ended = list(threads.map(write, (1, 2)))
    assert [run.returncode for run in ended] == [0, 0], ended[0].stderr + ended[1].stderr
    book = Book({}, Store(tmp_path / "c"))
    times = {book.measured(Problem("dot", (("x", n),), (), (), "H200"))[0].measured_us for n in range(40)}
    assert times <= {1.0, 2.0}
