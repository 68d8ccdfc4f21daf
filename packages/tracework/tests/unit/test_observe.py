"""Watchers see what every compile() call makes; where there is none, nothing is told."""

from tracework import observe


class Watcher:
    def __init__(self, number):
        self.number, self.seen = number, []

    def product(self, stage, product):
        self.seen.append((stage, product))

    def loaded(self, compiled):
        return (self.number, compiled)


def test_watchers():
    first, second = Watcher(1), Watcher(2)
    with observe.watched(first):
        with observe.watched(second):
            observe.tell("plan", 3)
            assert observe.instead_of("f") == (2, (1, "f"))
        observe.tell("plan", 4)
    observe.tell("plan", 5)
    assert first.seen == [("plan", 3), ("plan", 4)] and second.seen == [("plan", 3)]
    assert observe.instead_of("f") == "f"
