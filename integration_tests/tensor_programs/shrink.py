"""Cuts the text of a program down: its first line describes it, its last returns a tuple."""

from __future__ import annotations

import time

__all__ = ["kind_of", "shrunk"]


def shrunk(text, fails, seconds):
    """Without the lines and results that it fails without."""
    end, lines, smaller = time.monotonic() + seconds, text.rstrip().splitlines(), True
    while smaller:
        smaller = False
        *head, last = lines
        head, body = head[:2], head[2:]
        results = [r for r in last.strip()[len("return (") : -1].split(",") if r.strip()]
        fewer = [[*head, *body[:i], *body[i + 1 :], last] for i in reversed(range(len(body)))]
        fewer += [
            [*head, *body, f"    return ({','.join(results[:i] + results[i + 1 :])},)"]
            for i in range(len(results))
            if len(results) > 1
        ]
        for candidate in fewer:
            if time.monotonic() > end:
                break
            try:
                compile("\n".join(candidate), "", "exec")
            except SyntaxError:
                continue
            if fails("\n".join(candidate) + "\n"):
                lines, smaller = candidate, True
                break
    return "\n".join(lines) + "\n"


def kind_of(text):
    """The error and the part that differs."""
    return text and text.split("\n")[0].split()[:1] + text.split("\n")[0].split()[3:4]
