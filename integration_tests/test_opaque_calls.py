"""Functions of a C extension that nobody told the compiler about: opaque calls in the graph, or a break where that could be wrong."""

import importlib.util
import subprocess
import sys
import sysconfig

import pytest
import torch
import tracework
from training import BACKENDS, check, same

SOURCE = r"""
#include <Python.h>
static long calls;
static PyObject *product(PyObject *m, PyObject *a) {
    calls++;
    return PyNumber_Multiply(PyTuple_GET_ITEM(a, 0), PyTuple_GET_ITEM(a, 1));
}
static PyObject *pair(PyObject *m, PyObject *x) {
    return Py_BuildValue("(NN)", PyNumber_Add(x, x), PyObject_CallMethod(x, "sum", NULL));
}
static PyObject *itself(PyObject *m, PyObject *x) { return Py_NewRef(x); }
static PyObject *increased(PyObject *m, PyObject *x) {
    PyObject *one = PyLong_FromLong(1), *y = PyNumber_InPlaceAdd(x, one), *z;
    Py_DECREF(one);
    z = y ? PyNumber_Add(y, y) : NULL;
    Py_XDECREF(y);
    return z;
}
static PyObject *moody(PyObject *m, PyObject *x) {
    return ++calls < 3 ? PyNumber_Add(x, x) : PyObject_CallMethod(x, "sum", NULL);
}
static PyObject *failing(PyObject *m, PyObject *x) { PyErr_SetString(PyExc_ValueError, "no"); return NULL; }
static PyObject *count(PyObject *m, PyObject *x) { long n = calls; calls = 0; return PyLong_FromLong(n); }
static PyMethodDef methods[] = {
    {"product", product, METH_VARARGS, 0}, {"pair", pair, METH_O, 0}, {"itself", itself, METH_O, 0},
    {"told", pair, METH_O, 0}, {"increased", increased, METH_O, 0}, {"moody", moody, METH_O, 0}, {"failing", failing, METH_O, 0},
    {"count", count, METH_NOARGS, 0}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "tracework_foreign", 0, -1, methods};
PyMODINIT_FUNC PyInit_tracework_foreign(void) { return PyModule_Create(&module); }
"""


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """A compiled extension module."""
    folder = tmp_path_factory.mktemp("foreign")
    product = folder / ("tracework_foreign" + sysconfig.get_config_var("EXT_SUFFIX"))
    (folder / "module.c").write_text(SOURCE)
    include = f"-I{sysconfig.get_paths()['include']}"
    subprocess.run(["gcc", "-shared", "-fPIC", include, str(folder / "module.c"), "-o", str(product)], check=True, timeout=300)
    spec = importlib.util.spec_from_file_location("tracework_foreign", product)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["tracework_foreign"] = module
    yield module
    del sys.modules["tracework_foreign"]


@pytest.fixture
def inputs():
    return [torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_in_one_graph(foreign, inputs, backend):
    def fn(x, y):
        a = foreign.product(x.sin(), y + 1)
        b, total = foreign.pair(a)
        return a + b, total * foreign.product(b, 3.0)

    check(fn, *inputs, backend=backend)


def test_it_is_a_barrier(foreign, inputs):
    def fn(x, y):
        foreign.product(x, y)
        return foreign.product(x, y) + foreign.product(x, y)

    compiled = tracework.compile(fn, fullgraph=True)
    compiled(*inputs)
    foreign.count()
    compiled(*inputs)
    assert foreign.count() == 3


@pytest.mark.parametrize("name", ["itself", "increased"])
def test_what_writes_or_aliases_breaks_the_graph(foreign, inputs, name):
    def fn(x, y):
        z = x + y
        found = getattr(foreign, name)(z)
        z.add_(1)
        return found, z

    compiled = tracework.compile(fn, backend="eager")
    same(list(compiled(*inputs)), list(fn(*inputs)))
    with pytest.raises(Exception, match="cannot be captured as one graph"):
        tracework.compile(fn, backend="eager", fullgraph=True)(*inputs)


def test_gradients_are_left_to_plain_python(foreign, inputs):
    found = []
    for compiled in (foreign.product, tracework.compile(lambda x, y: foreign.product(x * 2, y) + 1, backend="eager")):
        x = inputs[0].clone().requires_grad_()
        compiled(x, inputs[1]).sum().backward()
        found.append(x.grad)
    same(found[1], found[0] * 2)


def test_an_exception_is_the_functions_own(foreign, inputs):
    with pytest.raises(ValueError, match="no"):
        tracework.compile(lambda x: foreign.failing(x + 1), backend="eager")(inputs[0])


def test_another_result_than_the_first_is_an_error(foreign, inputs):
    compiled = tracework.compile(lambda x: foreign.moody(x + 1) * 2, backend="eager", fullgraph=True)
    foreign.count()
    compiled(inputs[0])
    with pytest.raises(RuntimeError, match="disallow_in_graph"):
        compiled(inputs[0])


def test_sizes_that_change(foreign):
    compiled = tracework.compile(lambda x: foreign.product(x + 1, x) * 2, backend="eager")
    for size in (2, 3, 4, 5):
        x = torch.arange(float(size))
        same(compiled(x), (x + 1) * x * 2)


def test_told_otherwise(foreign, inputs):
    tracework.compiler.disallow_in_graph(foreign.told)
    with pytest.raises(Exception, match="cannot be captured as one graph"):
        tracework.compile(lambda x: foreign.told(x), backend="eager", fullgraph=True)(inputs[0])
