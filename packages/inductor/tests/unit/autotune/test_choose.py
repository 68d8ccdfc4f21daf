"""Which candidate is taken: pure, given the book and what is measured."""

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tracework_inductor.autotune.book import Book, Row, triton_version
from tracework_inductor.autotune.choose import FAVOUR, LIBRARY, MOST_TIMED, NOT_NOW, Question, decide
from tracework_inductor.autotune.cost import DEVICES, Calibration
from tracework_inductor.autotune.record import Candidate, Problem
from tracework_runtime.cache.store import MemoryStore

DEVICE = DEVICES["H200"]
CALIBRATED = dataclasses.replace(DEVICE, calibrated={"dot": Calibration()})
PROBLEM = Problem("dot", (("x", 1 << 16),), (), (), DEVICE.name, bytes=1 << 30)


def block(size, bits="", **facts):
    return Candidate("dot", {"constants": {"XBLOCK": size}, "num_warps": 4, "num_stages": 1}, bits, **facts)


def doubled(candidate):
    """The blocks of half and of twice the size."""
    size = candidate.constants["XBLOCK"]
    return [block(n) for n in (size // 2, 2 * size) if 1 <= n <= 4096]


class Paper:
    """Times that a function gives, and what was asked for."""

    def __init__(self, us):
        self.us, self.rounds = us, []

    def __call__(self, asked):
        self.rounds.append([c.constants.get("XBLOCK", c.way) for _, c in asked])
        return [self.us(c) for _, c in asked]


def one(question, book=None, device=DEVICE, measure=None):
    return decide([question], book or Book({}), device, measure)[0]


def shipped(*candidates, problem=PROBLEM):
    row = Row(problem.facts(), candidates, triton_version())
    return Book({row.key: row}, MemoryStore())


def test_without_calibration_the_first_guess_is_taken():
    found = one(Question(PROBLEM, (Candidate(LIBRARY, predicted_us=100.0), block(64, predicted_us=1.0))))
    assert found[0].way == LIBRARY and found[0].reason == "the first guess" and found[1].predicted_us == 1.0


@pytest.mark.parametrize(("ours", "way"), [(100.0, LIBRARY), (90.5, LIBRARY), (89.5, "dot")])
def test_a_prediction_has_to_be_better_than_the_librarys(ours, way):
    candidates = (block(64, predicted_us=ours), Candidate(LIBRARY, predicted_us=100.0))
    assert FAVOUR == 0.9 and one(Question(PROBLEM, candidates), device=CALIBRATED)[0].way == way


@pytest.mark.parametrize("measure", [None, Paper(lambda c: 1.0)])
def test_the_book_that_shipped_comes_first_and_may_move_bits(measure):
    question = Question(PROBLEM, (Candidate(LIBRARY), block(64, "other bits")))
    found = one(question, shipped(block(128, "other bits", measured_us=3.0), Candidate(LIBRARY)), measure=measure)
    assert (
        found[0].constants == {"XBLOCK": 128} and found[0].reason == "from the book" and (measure is None or not measure.rounds)
    )


@pytest.mark.parametrize(
    "row", [Candidate("attention"), Candidate("dot", {"constants": {"YBLOCK": 4}})], ids=["way", "constants"]
)
def test_a_row_that_this_version_does_not_make_is_no_answer(row):
    assert one(Question(PROBLEM, (block(64),)), shipped(row))[0].constants == {"XBLOCK": 64}


def test_default_mode_does_not_look_at_what_was_measured_here():
    """Else the same program would have other kernels after another one was tuned."""
    book = Book({}, MemoryStore())
    book.keep(PROBLEM, (block(256, measured_us=1.0),))
    question = Question(PROBLEM, (block(64),))
    assert one(question, book)[0].constants == {"XBLOCK": 64}
    measure = Paper(lambda c: 1.0)
    assert one(question, book, measure=measure)[0].constants == {"XBLOCK": 256} and not measure.rounds


def test_what_was_measured_with_other_bits_is_measured_again():
    book = Book({}, MemoryStore())
    book.keep(PROBLEM, (block(256, "old bits", measured_us=1.0),))
    measure = Paper(lambda c: c.constants["XBLOCK"])
    assert one(Question(PROBLEM, (block(64), block(32))), book, measure=measure)[0].constants == {"XBLOCK": 32} and measure.rounds


def test_the_likely_ones_are_timed_then_neighbours_while_they_are_quicker():
    candidates = (block(64), *(block(n, predicted_us=float(n)) for n in (512, 256, 128, 1024, 2048)))
    measure = Paper(lambda c: abs(c.constants["XBLOCK"] - 8) + 10.0)
    book = Book({}, MemoryStore())
    found = one(Question(PROBLEM, candidates, doubled), book, measure=measure)
    assert measure.rounds == [[64, 128, 256, 512], [32], [16], [8], [4]]  # 128 and 64 are known already
    assert len(measure.rounds[0]) == MOST_TIMED
    assert found[0].constants == {"XBLOCK": 8} and found[0].measured_us == 10.0
    again = Paper(lambda c: 1.0)
    assert one(Question(PROBLEM, candidates, doubled), book, measure=again)[0].constants == {"XBLOCK": 8} and not again.rounds


def test_what_moves_bits_is_not_timed():
    candidates = (block(64), block(128, "other"), block(256), Candidate(LIBRARY, bits="the library's"))
    measure = Paper(lambda c: 1000.0 / c.constants["XBLOCK"])
    found = one(Question(PROBLEM, candidates, lambda c: [block(512, "other")]), measure=measure)
    assert measure.rounds == [[64, 256]] and found[0].constants == {"XBLOCK": 256}
    assert [c.reason for c in found] == ["", "", "other bits", "other bits"]


def test_ties_go_by_order():
    times = {64: 10.0, 128: 9.9, 256: 9.85}
    measure = Paper(lambda c: times[c.constants["XBLOCK"]])
    assert one(Question(PROBLEM, tuple(block(n) for n in times)), measure=measure)[0].constants == {"XBLOCK": 64}


def test_what_cannot_run_has_a_reason_and_the_first_guess_stays_where_nothing_runs():
    candidates = tuple(block(n) for n in (64, 128, 256))
    measure = Paper(lambda c: "it spills" if c.constants["XBLOCK"] == 64 else float(c.constants["XBLOCK"]))
    found = one(Question(PROBLEM, candidates), measure=measure)
    assert found[0].constants == {"XBLOCK": 128} and found[-1].reason == "it spills" and found[-1].measured_us is None
    book = Book({}, MemoryStore())
    nothing = one(Question(PROBLEM, candidates), book, measure=Paper(lambda c: "out of memory"))
    assert nothing[0].constants == {"XBLOCK": 64} and {c.reason for c in nothing} == {"out of memory"}
    assert book.measured(PROBLEM) == ()


def test_a_search_that_was_broken_off_is_not_kept():
    book = Book({}, MemoryStore())
    candidates = (block(64), block(128))
    measure = Paper(lambda c: 5.0 if c.constants["XBLOCK"] in (64, 128) else NOT_NOW + "no time is left")
    assert one(Question(PROBLEM, candidates, doubled), book, measure=measure)[0].measured_us == 5.0
    assert book.measured(PROBLEM) == ()


def test_nothing_is_timed_where_there_is_no_choice():
    measure = Paper(lambda c: 1.0)
    assert one(Question(PROBLEM, (block(64),)), measure=measure)[0].measured_us is None and not measure.rounds


def test_questions_are_timed_together_round_by_round():
    problems = [dataclasses.replace(PROBLEM, sizes=(("x", n),)) for n in (1, 2, 3)]
    measure = Paper(lambda c: float(c.constants["XBLOCK"]))
    questions = [Question(problems[0], (block(4),), doubled), Question(problems[1], (block(1), block(2)), doubled)]
    found = decide([*questions, Question(problems[2], (block(7),))], Book({}), DEVICE, measure)
    assert [c[0].constants["XBLOCK"] for c in found] == [1, 1, 7]
    assert measure.rounds == [[4, 1, 2], [2, 8], [1]]


@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_equal_questions_have_equal_answers(data):
    sizes = data.draw(st.lists(st.sampled_from([1 << n for n in range(13)]), min_size=1, max_size=8, unique=True))
    times = {1 << n: data.draw(st.floats(1, 100)) for n in range(13)}
    bits = {n: data.draw(st.sampled_from(["", "other"])) for n in sizes}
    question = Question(PROBLEM, tuple(block(n, bits[n]) for n in sizes), doubled)
    device = data.draw(st.sampled_from([DEVICE, CALIBRATED]))
    assert one(question, device=device) == one(question, device=device)
    first = one(question, device=device)[0]
    timed = [one(question, device=device, measure=Paper(lambda c: times[c.constants["XBLOCK"]]))[0] for _ in range(2)]
    assert timed[0] == timed[1] and timed[0].bits == first.bits
