"""GraphBuilder: the fx graph at level "captured", recorded node by node and run on fakes as it grows."""

from __future__ import annotations

import contextlib
import logging
import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import fx
from tracework_primops import FakeTensor, add_node

from .._torch.modes import torch_functions_off
from ..contracts import InputBinding
from ..errors import BreakGraph
from ..formulas import ComputedNumber
from ..signals import let_through
from ..sources import Const, Source
from .changed_inputs import TYPE_DTYPES, number_tensor
from .checks import isolate_node
from .constant_data import learn, numbers_alone, with_numbers
from .distributed import Masks, fix_sizes, refuse_draws
from .handlers import goes_on, is_managed, is_swallowed
from .settings import guard_choices, with_defaults
from .sizes import UnspecialisedNumbers, bind_sizes, expression_node
from .specialised import specialised_tensor
from .tensor_formulas import learn_formula, number_of_formula
from .wrapped import Unwrap

if TYPE_CHECKING:
    from ..values.protocol.kinds import AbstractTensor
    from ..values.protocol.value import Value

log = logging.getLogger("tracework.capture.graph")


def graph_argument(frame: Any, value: Any) -> Any:
    """A Value, or a Python structure with Values inside, as an fx argument."""
    as_graph_arg = getattr(value, "as_graph_arg", None)
    if as_graph_arg is not None:
        return as_graph_arg(frame)
    if isinstance(value, (list, tuple)):
        return type(value)(graph_argument(frame, item) for item in value)
    if isinstance(value, dict):
        return {key: graph_argument(frame, item) for key, item in value.items()}
    if isinstance(value, torch.SymInt):  # a size of a fake
        return frame.graph.size_node(frame.symbols.from_symint(value))
    return value


class GraphBuilder:
    """Nodes, and placeholders by source and by identity. `wrap_result(frame, node, example)` makes Values of results."""

    def __init__(self, fake_mode: Any, symbols: Any, wrap_result: Callable[[Any, fx.Node, Any], Value]) -> None:
        self.graph = fx.Graph()
        self.fake_mode = fake_mode
        self.symbols = symbols
        self.wrap_result = wrap_result
        self.inputs: list[InputBinding] = []
        self.example_inputs: list[Any] = []
        self.aliased_inputs: set[str] = set()  # names of placeholders that stand for tensors of a subclass
        self.taken_apart: list[
            tuple[tuple[str, ...], Unwrap]
        ] = []  # names of placeholders of the parts of one tensor, what gives them
        self.calls = 0  # operations on tensors: what makes the graph worth its call
        self.own_calls = 0  # those of the frame itself; what it calls may be captured without it
        self.draws: dict[str, Callable[[Any], Any]] = {}  # name of an input -> what draws it from the generator that is given
        self.raises_in_block = False  # whether an operator may raise inside of a try or with block of the program
        self.goes_on = False  # whether the program may go on after an operator has raised
        self.raises_in_try = False  # whether its exception meets an except block that may go on, or a manager of the program
        self.freed_at = -1  # the step of the captured frame at which a backward first used a history up
        self.tensor_values: dict[int, Any] = {}  # id of a fake -> the value of its tensor (values/protocol/memory.py)
        self.wrapper_values: dict[int, Any] = {}  # the same of tensors of wrapper subclasses, by id of their examples
        self.masks: Masks | None = None  # once a tensor is distributed
        self.history_freed: Any = False  # or the same table, once a backward used a history up
        self._reads = self._raising = self._writing = self._drawing = 0
        self._by_tensor: dict[int, fx.Node] = {}
        self.symbol_nodes: dict[Any, fx.Node] = {}  # symbol of a size -> what gives its value
        self._by_expr: dict[Any, fx.Node] = {}
        self.unspecialised_numbers = UnspecialisedNumbers(self)
        self._names: dict[str, int] = {}
        self._last_placeholder: fx.Node | None = None

    def met(self) -> int:
        """How many tensors and operations on tensors the traced program came to so far."""
        return self.calls + len(self._by_tensor)

    # --- inputs --------------------------------------------------------------------------------------------------
    def tensor_input(
        self, tensor: torch.Tensor, source: Source, role: str = "tensor", sizes: Any = None, strides: Any = None, fake: Any = None
    ) -> fx.Node:
        """The placeholder of an existing tensor, made on first use; meta["example_value"] is its fake."""
        node = self._by_tensor.get(id(tensor))
        if node is not None:
            return node
        if fake is None:
            given = {} if sizes is None else {"sizes": sizes, "strides": strides}
            fake = self.fake_mode.from_real(tensor, **given)
        for size in sizes or ():
            if not isinstance(size, int):
                self.size_node(size)
        node = self._placeholder(source, role, fake, tensor)
        self._by_tensor[id(tensor)] = node
        return node

    def placeholder_of(self, tensor: torch.Tensor) -> fx.Node | None:
        """The placeholder of a tensor that is an input already."""
        return self._by_tensor.get(id(tensor))

    def tensor_constant(self, tensor: torch.Tensor) -> fx.Node:
        """A tensor that the traced program holds but that no source reaches: an input that the code itself keeps."""
        return self.tensor_input(tensor, Const(tensor, "tensor_constant"), "buffer")

    def size_input(self, origin: Source, value: int, lower: int | None, upper: int | None, number: bool = False) -> Any:
        """A symbol for a size, or any number, whose run-time value is a Python int read at `origin`, and its placeholder."""
        symbol = self.symbols.new(value, origin, lower, upper, number=number)
        self.know_size(symbol, self._placeholder(origin, "size", self.symbols.to_symint(symbol), value))
        return symbol

    def float_input(self, source: Source, number: float, role: str = "float") -> fx.Node:
        """The placeholder of a float; the graph gets it as a tensor of one number."""
        return self._filled_input(source, role, number_tensor(number))

    def computed_input(self, text: str, nodes: list[fx.Node], names: str, number: float) -> fx.Node:
        """The placeholder of the formula `text` over what these inputs are, which it calls by `names`: a float, made once for each text."""
        node = self._by_expr.get(text)
        if node is None:
            computed = ComputedNumber(text, names, tuple(self.inputs.index(node.meta["binding"]) for node in nodes))
            node = self._by_expr[text] = self.float_input(Const(computed, text), number, "computed")
        return node

    def drawn_input(self, source: Source, kind: type, draw: Callable[[Any], float]) -> fx.Node:
        """The placeholder of a number of this kind that is drawn for each run, from the generator at `source`."""
        return self.drawn_tensor(source, number_tensor(0, kind), draw)

    def drawn_tensor(self, source: Source, real: torch.Tensor, draw: Callable[[Any], Any]) -> fx.Node:
        """The placeholder of a tensor like this one that is drawn for each run, from the generator at `source`."""
        node = self._filled_input(source, "rng", real)
        self.draws[node.name] = draw
        return node

    def _filled_input(self, source: Source, role: str, real: torch.Tensor) -> fx.Node:
        return self._placeholder(source, role, self.fake_mode.from_real(real), real)

    def _placeholder(self, source: Source, role: str, example: Any, real: Any) -> fx.Node:
        name = self._name(source, role)
        anchor = self._last_placeholder
        with (
            self.graph.inserting_after(anchor)
            if anchor is not None
            else self.graph.inserting_before(next(iter(self.graph.nodes), None))
        ):
            node = self.graph.placeholder(name)
        is_static = role in ("parameter", "buffer") or "_dynamo_static_input_type" in getattr(real, "__dict__", ())
        binding = InputBinding(node.name, source, role, is_static)
        node.meta.update(example_value=example, val=example, binding=binding)
        self.inputs.append(binding)
        self.example_inputs.append(real)
        self._last_placeholder = node
        return node

    def _name(self, source: Source, role: str) -> str:
        text = "".join(c if c.isalnum() else "_" for c in str(source)).strip("_")[-80:] or role
        prefix = "p_" if role == "parameter" else "b_" if role == "buffer" else "in_"
        count = self._names[prefix + text] = self._names.get(prefix + text, 0) + 1
        return f"{prefix}{text}" if count == 1 else f"{prefix}{text}_tw{count}"

    def end(self) -> None:
        """The attempt is over: drops the user's objects."""
        self.example_inputs, self.tensor_values, self.wrapper_values = [], {}, {}

    # --- sizes ---------------------------------------------------------------------------------------------------
    def size_node(self, size: Any) -> Any:
        """The argument that stands for a size: the int itself, or a node that computes the expression from size inputs."""
        if isinstance(size, int):
            return size
        node = self._by_expr.get(size)
        if node is None:
            node = self._by_expr[size] = expression_node(self, size)
        return node

    def know_size(self, symbol: Any, node: fx.Node) -> None:
        """The symbol's value is what the node gives."""
        self.symbol_nodes[symbol] = self._by_expr[symbol] = node

    def bare_node(self, target: Any, args: tuple[Any, ...], example: Any) -> fx.Node:
        """A node that is no call of the program: it computes with sizes, say."""
        node = self.graph.call_function(target, args)
        node.meta["example_value"] = node.meta["val"] = example
        return node

    # --- calls ---------------------------------------------------------------------------------------------------
    def call(self, frame: Any, target: Any, args: Any, kwargs: Any = None, kind: str = "call_function") -> Value:
        """Record target(*args, **kwargs), run it on fakes, and wrap the result. args may hold Values anywhere."""
        given = tuple(graph_argument(frame, a) for a in args), {k: graph_argument(frame, v) for k, v in (kwargs or {}).items()}
        node_args, node_kwargs = self.unspecialised_numbers.settle(frame, target, given)
        number = numbers_alone(target, node_args, node_kwargs)
        if number is not None:
            return self.call(frame, torch.full, ((), number.item()), {"dtype": number.dtype})
        taken = None
        try:
            example = self.run_on_fakes(frame, target, node_args, node_kwargs, kind)
            if self.fake_mode.reads != self._reads:
                taken = with_numbers(target, node_args, node_kwargs)
        except BreakGraph as stop:
            if stop.reason_id != "dynamic_output_shape":
                raise
            data_of, size_of = partial(specialised_tensor, frame), partial(self.formula_size, frame)
            taken = with_numbers(target, node_args, node_kwargs, data_of, size_of)
            if taken is None:
                raise
        if taken is None and self.unspecialised_numbers.fix_for_nothing(frame, example):
            return self.call(frame, target, args, kwargs, kind)
        if taken is not None:
            self._reads = self.fake_mode.reads
            node_args, node_kwargs = taken
            example = self.run_on_fakes(frame, target, node_args, node_kwargs, kind)
        if frame.modes.states_written:
            node_kwargs = with_defaults(frame, target, node_args, node_kwargs, example, kind)
        return self.record(frame, target, node_args, node_kwargs, example, kind)

    def formula_size(self, frame: Any, node: fx.Node) -> Any:
        """The argument that stands for the number of a tensor that is computed from sizes; None for other nodes."""
        number = None if isinstance(node.meta["example_value"], torch.SymInt) else number_of_formula(frame, node)
        return number if number is None or type(number) is int else self.size_node(self.symbols.from_symint(number))

    def plain_node(self, frame: Any, target: Any, args: tuple[Any, ...], **marks: Any) -> fx.Node:
        """A node whose result is no value of the traced program, with these marks in its meta."""
        return self.known_node(frame, target, args, self.run_on_fakes(frame, target, args, {}, "call_function"), **marks)

    def known_node(self, frame: Any, target: Any, args: tuple[Any, ...], example: Any, **marks: Any) -> fx.Node:
        """Such a node whose example result is known already."""
        node = self.bare_node(target, args, example)
        node.meta.update(stack=frame.user_location(), stack_trace=frame.user_location(), **marks)
        self.calls += 1
        return node

    def compute(self, frame: Any, target: Any, args: Any) -> AbstractTensor:
        """As call, for floats that change, which the graph has as tensors of one number, and for what Python reads: it does so as fast, or
        faster, so no graph is worth its call for it."""
        calls = self.calls
        made = self.call(frame, target, args)
        self.calls = calls
        return cast("AbstractTensor", made)

    def call_method(self, frame: Any, name: str, args: Any, kwargs: Any = None) -> Value:
        """Record args[0].name(*args[1:], **kwargs)."""
        return self.call(frame, name, args, kwargs, "call_method")

    def record(
        self, frame: Any, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], example: Any, kind: str = "call_function"
    ) -> Value:
        """Add a node whose example result is known already."""
        args, kwargs = tuple(map(written_dtype, args)), {name: written_dtype(arg) for name, arg in kwargs.items()}
        meets_wrapper = self._meets_wrapper(args, kwargs, example)
        for value in list(self.wrapper_values.values()) if meets_wrapper else ():
            value.see_writes(frame)
        if "from" in kwargs:  # a word of Python, which the text of a graph cannot give an argument as: x.random_(from, to)
            args += tuple(kwargs.pop(name) for name in ("from", "to") if name in kwargs)
        if target is operator.pow and not isinstance(args[0], fx.Node):  # fx writes -2 ** x, which Python reads as -(2 ** x)
            kind, target, args = "call_method", "__rpow__", args[::-1]
        node = add_node(self.graph, kind, target, args, kwargs)
        node.meta["example_value"] = node.meta["val"] = example
        node.meta["stack"] = node.meta["stack_trace"] = frame.user_location()
        guard_choices(frame, target)
        self.calls += 1
        self.own_calls += frame.parent is None
        raised = frame.recording.effects.raised
        if len(raised) != self._raising:
            kinds = tuple(kind for each in raised[self._raising :] for kind in each)
            self._raising = len(raised)
            node.meta["may_raise"] = True
            self.raises_in_block = self.raises_in_block or frame.in_block or frame.current.handler is not None
            self.raises_in_try = self.raises_in_try or is_swallowed(frame, kinds) or is_managed(frame)
            self.goes_on = self.goes_on or goes_on(frame, kinds)
        if frame.recording.effects.writing != self._writing:
            self._writing = frame.recording.effects.writing
            node.meta["may_write"] = True
        if frame.recording.effects.drawing != self._drawing:
            self._drawing = frame.recording.effects.drawing
            node.meta["draws"] = True
        if frame.plan.learnt.isolated:
            isolate_node(frame, node)
        if not meets_wrapper:
            learn(node, example)
            learn_formula(node, example)
        if self.fake_mode.reads != self._reads:
            self._reads, node.meta["data_dependent"] = self.fake_mode.reads, True
            bind_sizes(self, node, example)
        return self.wrap_result(frame, node, example)

    def _meets_wrapper(self, args: tuple[Any, ...], kwargs: dict[str, Any], example: Any) -> bool:
        """Whether a tensor of a wrapper subclass is read or given: what its operators do, no table says."""
        if isinstance(example, torch.Tensor) and type(example) not in (FakeTensor, torch.Tensor):
            return True
        held = self.wrapper_values
        if not held:
            return False
        nodes: list[fx.Node] = []
        fx.map_arg((args, kwargs), nodes.append)
        return any(id(node.meta["example_value"]) in held for node in nodes)

    def run_on_fakes(self, frame: Any, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], kind: str) -> Any:
        """The call on example values; what fails there is a graph break, so plain Python gives the real error."""
        fake_args, fake_kwargs = examples(args), examples(kwargs)
        if self.symbols is not None:
            self.symbols.origin = frame.user_location()
        try:
            if self.masks is not None:
                refuse_draws(target, fake_args, fake_kwargs)
            # functions of the program's classes were asked
            with self.fake_mode, torch_functions_off(), self.masks or contextlib.nullcontext():
                function = getattr(fake_args[0], target) if kind == "call_method" else target
                found = function(*(fake_args[1:] if kind == "call_method" else fake_args), **fake_kwargs)
                if self.masks is not None:
                    self.masks.leave(found)
                return found
        except (BreakGraph, RecursionError):
            raise
        except Exception as error:
            let_through(error)
            if type(error).__name__ == "DataDependentError":
                raise BreakGraph("dynamic_output_shape", f"{target}: {error}") from error
            if type(error).__name__ == "GuardOnUnbackedError":
                raise BreakGraph("unbacked_condition", str(error)) from error
            log.debug("%s failed on fakes", target, exc_info=True)
            if self.masks is not None and self.symbols is not None and self.symbols.has_symbols:
                fix_sizes(frame)  # how it is distributed may be a question that symbols do not answer
            raise BreakGraph("fake_failed", f"{getattr(target, '__name__', target)}: {type(error).__name__}: {error}") from error


def written_dtype(arg: Any) -> Any:
    """What torch takes a Python type to be, which the text of a graph cannot name; other arguments as they are."""
    return TYPE_DTYPES.get(arg, arg) if type(arg) is type else arg


def examples(arg: Any) -> Any:
    """fx arguments with nodes replaced by their example values."""
    if isinstance(arg, fx.Node):
        return arg.meta["example_value"]
    kind = type(arg)
    if kind is tuple or kind is list or kind is fx.immutable_collections.immutable_list:
        made = [examples(item) for item in arg]
        return tuple(made) if kind is tuple else made
    if isinstance(arg, tuple):
        return kind(*[examples(item) for item in arg]) if hasattr(arg, "_fields") else kind(examples(item) for item in arg)
    if isinstance(arg, dict):
        return {key: examples(item) for key, item in arg.items()}
    if kind is slice:
        return slice(examples(arg.start), examples(arg.stop), examples(arg.step))
    return arg
