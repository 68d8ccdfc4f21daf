"""What writes a program: variables in sight by kind, expressions filled from tables, blocks, and statements given as templates."""

from __future__ import annotations

import re

from .expressions import EXPRESSIONS, LITERALS

__all__ = ["Writer", "template"]

PARAMETERS = {"x": "T", "y": "T", "n": "I", "flag": "B", "items": "L", "table": "D", "obj": "O", "word": "S"}

BREAKS = ["note($I, $T)", "print($I, $S)", "tracework_capture.graph_break()", "if $T.sum() > #: LOG.append('positive')"]

ITERATED = re.compile(r"[(\[{].* for .* in [\w($, ]*$")
"""The text before what a comprehension iterates over, which assigns nothing."""


class Writer:
    """Lines of the function under way; `choices` has choice, randint and random."""

    def __init__(self, choices, simple, compound):
        self.c = choices
        self.simple, self.compound = simple, compound
        self.names = 0
        self.budget = choices.randint(4, 20)
        self.careful = choices.random() < 0.2  # some programs go on after a statement that raises
        self.breaks = choices.choice((0, 0, 0.02, 0.08))  # how often an expression breaks the graph
        self.helpers = {}  # functions of the module that the next ones may call: name -> kind
        self.restart()

    def restart(self, depth=0):
        """Begin a function whose statements stand so deep in it."""
        self.lines = []
        self.depth = depth
        self.loops = 0
        self.in_function = 0
        self.returns = True  # whether a return may stand here
        self.scope = PARAMETERS | self.helpers  # name -> kind, of the variables in sight

    def state(self):
        return len(self.lines), self.budget, dict(self.scope), self.depth, self.place()

    def place(self):
        """What may stand here."""
        return self.loops, self.in_function, self.returns

    def go_back(self, state):
        """Drop what was written since the state."""
        length, self.budget, self.scope, self.depth, place = state
        self.loops, self.in_function, self.returns = place
        del self.lines[length:]

    def pick(self, kind):
        names = [n for n, k in self.scope.items() if k == kind]
        return self.c.choice(names) if names else None

    def fresh(self, kind):
        """A new variable, or an old one of the kind."""
        if self.c.random() < 0.35:
            old = [n for n, k in self.scope.items() if k == kind and n.startswith("v")]
            if old:
                return self.c.choice(old)
        return self.name("v")

    def name(self, prefix):
        self.names += 1
        return f"{prefix}{self.names}"

    def put(self, text):
        self.lines.append("    " * (self.depth + 1) + text)

    def expr(self, kind, deep=0):
        if kind == "A":
            kind = self.c.choice("TTTIIFLDSBOPZRMEQXN")
        name = self.pick(kind)
        if name is not None and (deep > 2 or self.c.random() < 0.3):
            return name
        text = LITERALS[kind] if deep > 2 else self.fill(self.c.choice(EXPRESSIONS[kind]), deep + 1)
        return f"brk({text})" if self.c.random() < self.breaks else text

    def fill(self, text, deep=1):
        """The text with an expression for each `$K` and a number for each `#`."""
        in_string = "f'" in text
        deep = 9 if in_string else deep  # quotes inside f-strings: names only before Python 3.12

        def replacement(match):
            if match.group() == "#":
                return str(self.c.randint(-2, 5))
            part = self.expr(match.group(1), deep)
            if (":=" in part or "yield" in part) and ITERATED.search(text[: match.start()]):
                part = LITERALS[match.group(1)]
            part = part.replace("'", '"') if in_string else part
            bare = part.isidentifier() or text[match.start() - 1 : match.start()] == "{"
            return part if bare else f"({part})"

        return re.sub(r"\$([A-Z])|#", replacement, text)

    def block(self, least=1, most=3):
        self.depth += 1
        known = dict(self.scope)
        for _ in range(self.c.randint(least, most)):
            self.statement()
        # a variable that may be unbound afterwards is now and then still used: UnboundLocalError is a result, too
        if self.c.random() < 0.9:
            self.scope = known
        self.depth -= 1

    def statement(self):
        self.budget -= 1
        if self.c.random() < self.breaks:
            self.put(self.fill(self.c.choice(BREAKS)))
        simple = self.budget <= 0 or self.depth > 3
        form = self.c.choice(self.simple if simple or self.c.random() < 0.5 else self.compound)
        if not self.careful or self.depth or self.c.random() < 0.3:
            return form(self)
        known, start = set(self.scope), len(self.lines)
        self.put("try:")
        self.depth += 1
        form(self)
        self.depth -= 1
        self.put("except Exception as error: LOG.append(type(error).__name__)")
        new = [f"    {name} = {LITERALS[kind]}" for name, kind in self.scope.items() if name not in known]
        self.lines[start:start] = new

    def inside(self, names, loops=0):
        """The scope of a nested function: its parameters, and of what is outside only what no block assigns."""
        self.scope = {k: v for k, v in self.scope.items() if k[0] not in "vw"} | names
        self.loops, self.in_function, self.returns = loops, self.in_function + 1, True

    def write(self, text):
        """A template: `@f` is a new name that begins with f, `@@f` decorates with it; BLOCK is a block, `=> @r T` names what it leaves."""
        names, outer = {}, []
        for line in text.strip("\n").splitlines():
            indent, body = (len(line) - len(line.lstrip())) // 4, line.strip()
            while outer and indent <= outer[-1][0]:
                _, self.scope, (self.loops, self.in_function, self.returns) = outer.pop()
            for name in re.findall(r"@([a-zA-Z])\b", body):
                if name not in names:
                    names[name] = self.name(name[0])
            body = re.sub(r"@([a-zA-Z])\b", lambda match: names[match.group(1)], body)
            if body.startswith("=>"):
                _, name, kind = body.split()
                self.scope[name] = kind
            elif body == "BLOCK":
                self.depth += indent - 1
                self.block()
                self.depth -= indent - 1
            else:
                self.depth += indent
                self.put(self.fill(body))
                self.depth -= indent
            if body.startswith(("def ", "async def ")):
                outer.append((indent, self.scope, self.place()))
                parameters = re.findall(r"[(,] ?([pq])\b", body)
                self.inside({p: "T" if p == "p" else "I" for p in parameters})
            elif body.startswith(("for ", "while ")):
                outer.append((indent, dict(self.scope), self.place()))
                self.loops += 1
            elif body.startswith(("class ", "except* ")):
                outer.append((indent, dict(self.scope), self.place()))
                self.loops, self.returns = 0, False
        while outer:
            _, self.scope, (self.loops, self.in_function, self.returns) = outer.pop()


def template(text):
    """A statement that writes the template; one with a block is left out where nesting is deep."""

    def statement(writer):
        deep = "BLOCK" in text and (writer.depth > 3 or writer.in_function > 1)
        writer.write("LOG.append($I)" if deep else text)

    return statement
