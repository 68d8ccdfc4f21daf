"""The picture of a graph after fusion: rows of boxes that do not overlap, arrows around what they pass."""

import re

from tracework.diagram import HEIGHT, ROW, WIDTH, picture_of, svg

BUFFERS = {name: ("float32", (4, 4)) for name in "abcdexw"}


def step(name, reads, writes, kind="loops"):
    return {"name": name, "kind": kind, "ops": "exp", "reads": reads, "writes": writes}


STEPS = [
    step("first", ["x", "w"], ["a"]),
    step("second", ["a"], ["b"]),
    step("mm", ["b", "w"], ["c"], "library"),
    step("late", ["w"], ["d"]),
    step("last", ["a", "c", "d"], ["e"]),
]


def test_boxes_and_arrows():
    picture = picture_of(STEPS, BUFFERS, ["e", "b", "w"], ["x", "w"], {"w"}, "#step{}")
    assert {box.lines[0]: box.row for box in picture.boxes.values() if box.kind != "output"} == {
        "x": 0, "first": 1, "second": 2, "mm": 3, "late": 3, "last": 4,
    }  # fmt: skip
    assert picture.boxes["step0"].lines == ["first", "exp + 1 input"] and picture.boxes["step0"].link == "#step0"
    assert sorted(box.name for box in picture.boxes.values() if box.kind == "output") == ["output of step1", "output of step4"]
    text = svg(picture)
    boxes = [tuple(map(int, found)) for found in re.findall(r'<rect [^>]*x="(\d+)" y="(\d+)"', text)]
    assert len(boxes) == len(picture.boxes) and text.count('class="arrow"') == len(picture.arrows)
    for n, (x, y) in enumerate(boxes):
        assert all(abs(x - other) >= WIDTH or abs(y - below) >= HEIGHT for other, below in boxes[:n])
    # the arrow from the first to the last passes two rows beside their boxes
    (way,) = [d for d, what in re.findall(r'd="(M[^"]*)"><title>(.*?)<', text) if d.count("C") == 3 and what]
    passed = [tuple(map(int, point)) for point in re.findall(r"L(\d+),(\d+)", way)]
    assert len(passed) == 2
    for x, y in passed:
        assert not any(left < x < left + WIDTH for left, top in boxes if top // ROW == y // ROW)


def test_many_inputs_are_counted():
    names = [f"i{n}" for n in range(20)]
    picture = picture_of([step("sum", names, ["a"])], BUFFERS, ["a"], names)
    assert [box.lines for box in picture.boxes.values()][0] == ["sum", "exp + 20 inputs"]
