import pytest
from tracework_capture.guards.answers import Answer, answer_to
from tracework_capture.guards.store import NotPortable

CASES = {
    # text, numbers -> whether it holds
    "true": ("a > 2 * b", (5, 2), True),
    "false": ("a > 2 * b", (3, 2), False),
    "of another kind": ("a > 2 * b", (5.0, 2), False),
    "that raises": ("a > 1 / b", (5, 0), False),
}


@pytest.mark.parametrize(("text", "numbers", "holds"), CASES.values(), ids=CASES)
def test_one_that_was_stored_asks_the_same(text, numbers, holds):
    made = answer_to(text, "a, b", (int, int), True)
    again = Answer.of(None, made.digest())
    assert again is made and made(*numbers) is holds and again.__doc__ == f"{text} is True"


def test_of_kinds_of_the_programs():
    class Own(int):
        pass

    with pytest.raises(NotPortable):
        Answer("a > 2", "a", (Own,), True).digest()
