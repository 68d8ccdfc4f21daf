"""Operators by name: torch's, those of libraries and custom ones, and those that take functions."""

from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops.associative_scan import associative_scan_op as associative_scan_op
from torch._higher_order_ops.associative_scan import generic_associative_scan as generic_associative_scan
from torch._higher_order_ops.cond import cond_op as cond_op
from torch._higher_order_ops.map import map as _map
from torch._higher_order_ops.map import map_impl as map_impl
from torch._higher_order_ops.out_dtype import out_dtype as out_dtype
from torch._higher_order_ops.scan import scan as scan
from torch._higher_order_ops.scan import scan_op as scan_op
from torch._higher_order_ops.while_loop import while_loop as while_loop
from torch._higher_order_ops.while_loop import while_loop_op as while_loop_op
from torch._higher_order_ops.wrap import wrap_with_autocast as wrap_with_autocast
from torch._higher_order_ops.wrap import wrap_with_set_grad_enabled as wrap_with_set_grad_enabled
from torch._library.custom_ops import CustomOpDef as CustomOpDef
from torch._ops import HigherOrderOperator as HigherOrderOperator
from torch._ops import OpOverload as OpOverload
from torch._ops import OpOverloadPacket as OpOverloadPacket

VF = torch._VF
NATIVE_NAMESPACES: dict[Any, str] = {
    torch._C._VariableFunctions: "",
    torch._C._nn: "",
    torch._C._linalg: "linalg_",  # type: ignore[attr-defined]
    torch._C._fft: "fft_",  # type: ignore[attr-defined]
    torch._C._special: "special_",  # type: ignore[attr-defined]
}
"""Namespaces of operators that C defines -> how the names of those operators begin."""
map_steps: Callable[..., Any] = _map
wrap_triton: Any = getattr(torch.library, "wrap_triton", None)
"""What makes a kernel of Triton's one that graphs hold; None in a torch without it."""


def has_gradient(operator: Any) -> bool:
    """Whether an operator of a library has a formula for its gradient."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "Autograd")


def operator_names() -> frozenset[str]:
    """Names of the operators of namespace aten, without overloads."""
    names = torch._C._dispatch_get_all_op_names()
    return frozenset(n.partition("::")[2].partition(".")[0] for n in names if n.startswith("aten::"))


def custom_operator(operator: Any) -> Any:
    """What torch.library made the operator with; None for other operators."""
    if isinstance(operator, (OpOverload, OpOverloadPacket)):
        packet: Any = getattr(operator, "overloadpacket", operator)
        operator = torch._library.custom_ops.OPDEFS.get(packet._qualified_op_name)
    return operator if isinstance(operator, CustomOpDef) else None


def rules_of_custom_operator(operator: Any) -> list[Any]:
    """The functions that say what calls of a custom operator give, what their gradients are, and what is done under vmap and modes."""
    functions = [operator._abstract_fn, operator._backward_fn, operator._setup_context_fn, operator._vmap_fn]
    functions += sorted(operator._torch_dispatch_fns.values(), key=lambda function: str(function.__qualname__))
    return [function for function in functions if function is not None]


def schema_of_custom_operator(operator: Any) -> str:
    """Its name, arguments and results, and what it is said to do."""
    # the dtypes that autocast gives it are all in a dict, or each by itself
    casts = sorted((name, repr(dtype)) for name, dtype in vars(operator).items() if name.startswith("_autocast_"))
    return f"{schema_of_operator(operator._opoverload)} {casts}"


def schema_of_operator(overload: Any) -> str:
    """The same of an overload."""
    return f"{overload._schema} {sorted(map(str, overload.tags))}"


OpNamespace: Any = type(torch.ops.aten)
ClassInCpp: Any = type(torch._C._SDPBackend)
ObjectInCpp: Any = torch._C._SDPBackend.__base__
OF_CPP = {"ClassInCpp": ClassInCpp, "ObjectInCpp": ObjectInCpp}
"""The class of the classes that torch has in C++, and their base, which no names of their own lead to."""


def operators_of(namespace: str) -> Any:
    """What torch.ops has under a name."""
    return getattr(torch.ops, namespace)


def operator_under(namespace: Any, name: str) -> Any:
    """What a namespace of torch.ops has under a name; None where there is nothing."""
    return getattr(namespace, name) if torch._C._jit_get_schemas_for_operator(f"{namespace.name}::{name}") else None


def namespaces() -> set[str]:
    """Those that have operators: torch.ops has any other one as soon as it is asked for it."""
    return {known.partition("::")[0] for known in torch._C._dispatch_get_all_op_names()}


def overloads_of(operator: Any) -> list[Any]:
    """An overload, or all that a packet has."""
    return [operator] if isinstance(operator, OpOverload) else [getattr(operator, name) for name in sorted(operator.overloads())]


_RULE_KEYS = (
    *("Meta", "CompositeImplicitAutograd", "Autograd", "AutogradCPU", "AutogradCUDA", "AutogradOther", "ADInplaceOrView"),
    *("AutocastCPU", "AutocastCUDA", "Functionalize", "FuncTorchBatched", "FuncTorchBatchedDecomposition", "PythonDispatcher"),
)
"""Under which an operator has what tracing takes from it, not what computes it."""


def rules_of_defined_operator(overload: Any) -> tuple[Any, list[Any], list[str]]:
    """Of an operator that torch.library.define made, or a library in C++: the function of Python's that says what it gives, None where there is
    none; those of its gradients; and for what else it has rules, whose functions cannot be seen."""
    name = overload.name()
    kernel = torch._library.simple_registry.singleton.find(name).fake_impl.kernel
    keys = _RULE_KEYS if kernel is None else _RULE_KEYS[1:]  # which a fake stands behind
    rest = [key for key in keys if torch._C._dispatch_has_kernel_for_dispatch_key(name, key)]
    rest += [str(key) for key in (*overload.py_kernels, *overload.python_key_table)]
    gradients = _registered_gradients(overload) if "Autograd" in rest else []
    if gradients:
        rest.remove("Autograd")
    return None if kernel is None else kernel.func, gradients, rest


def _registered_gradients(overload: Any) -> list[Any]:
    """What torch.library.register_autograd was given; nothing where another rule stands for the gradients, or has before."""
    rules = [line for line in torch._C._dispatch_dump(overload.name()).splitlines() if line.startswith("Autograd[alias]")]
    name = f"GeneratedBackwardFor_{overload._namespace}_{overload._opname}_{overload._overloadname}"
    made = [kind for kind in torch.autograd.Function.__subclasses__() if kind.__name__ == name]
    if len(rules) != 1 or len(made) != 1:
        return []
    function: Any = made[0].backward
    while function is not None:
        held = {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ())}
        if "info" in held:
            given = held["info"]._backward_fn, held["info"]._setup_context_fn
            return [each for each in given if each is not None]
        function = held.get("orig_backward")  # which takes lists of tensors apart
    return []


def named_operator(name: str, overload: str | None) -> Any:
    """The packet of that name, as in `aten::add`, or an overload of it; None where there is none."""
    namespace, _, last = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), last, None)
    return packet if overload is None else getattr(packet, overload, None)


def function_of_custom_operator(operator: Any) -> Any:
    """The Python function that a custom operator runs; None for other operators."""
    found = custom_operator(operator)
    return None if found is None else found._init_fn


def program_of_triton_operator(operator: Any) -> Any:
    """The Python function that torch.library.triton_op made the operator of; None for other operators, and where a backward was added."""
    operator = custom_operator(operator)
    if operator is None or operator._backward_fn is not None:
        return None
    is_triton = any(kind.__name__ == "FunctionalTensorMode" for kind in operator._torch_dispatch_fns)
    return operator._abstract_fn if is_triton else None
