"""The types of an entry, and the C file through which Python calls the lowered kernels.

Arguments are read through the buffer protocol, so the library needs no NumPy headers, and with Python's
limited interface it serves every Python from 3.11. The call itself runs without the GIL.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SCALARS = {float: "float64", int: "int64", bool: "boolean"}

IN_C = {"float64": "double", "int64": "int64_t", "boolean": "uint8_t"}
"""numba's scalars in C; a boolean is a byte in arguments and results."""

ENTRIES = {"float64", "float32", "int64"}
"""What an array may hold."""


class UnsuitableEntry(TypeError):
    """An entry has a parameter or a result that a library cannot hand over."""


@dataclass(frozen=True)
class Parameter:
    """One parameter: an array of `dimensions`, or a number if that is 0."""

    name: str
    scalar: str
    dimensions: int
    written: bool

    @property
    def numba(self) -> str:
        """The type as numba writes it."""
        if not self.dimensions:
            return self.scalar
        return f"{self.scalar}[{':, ' * (self.dimensions - 1)}::1]"


def parameters(name: str, function: Callable[..., Any], writes: tuple[str, ...]) -> list[Parameter]:
    """Return the parameters of an entry, from its annotations."""
    hints = typing.get_type_hints(function, include_extras=True)
    names = list(inspect.signature(function).parameters)
    if unknown := set(writes) - set(names):
        raise UnsuitableEntry(f"{name}: entry names {', '.join(sorted(unknown))}, not among its parameters")
    return [_parameter(name, each, hints.get(each), each in writes) for each in names]


def _parameter(entry: str, name: str, hint: Any, written: bool) -> Parameter:
    if hint in SCALARS:
        return Parameter(name, SCALARS[hint], 0, written)
    text = next(iter(getattr(hint, "__metadata__", ())), "")
    scalar, _, axes = str(text).partition("[")
    found = Parameter(name, scalar, axes.count(":") - 1, written)
    if scalar not in ENTRIES or found.numba != text:
        raise UnsuitableEntry(
            f"{entry}: parameter {name} is annotated with {hint}; an entry takes Vector, Matrix, Cube, "
            "Indices, SingleVector or SingleMatrix of uncertainty_sets/arrays.py, float, int or bool"
        )
    return found


def results(name: str, returned: Any) -> tuple[str, ...] | str:
    """Return numba's return type as a scalar, a tuple of scalars, or "none"."""
    text = {"bool": "boolean"}.get(str(returned), str(returned))
    if text == "none" or text in IN_C:
        return text
    each = tuple(str(one) for one in getattr(returned, "types", ()))
    if each and all(one in {"float64", "int64"} for one in each):
        return each
    raise UnsuitableEntry(f"{name} returns {text}; an entry returns nothing, a number, or a tuple of numbers")


X86_LEVELS = {
    "v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "v3": ("avx2", "fma", "bmi", "bmi2"),
    "v2": ("sse4.2", "popcnt"),
}
"""What a processor must have for each level of x86-64, best first."""

KIND = {"float64": "d", "float32": "f", "int64": "l", "boolean": "b"}
ITEM = {"float64": 8, "float32": 4, "int64": 8}
BUILD = {"float64": "d", "int64": "L"}


def source(described: dict[str, dict[str, Any]], sources: str) -> str:
    """Return the C file for one file of kernels.

    Args:
        described: for each level, best first, what `lower` says of the entries.
        sources: the hash of the sources (sources.py).
    """
    levels = list(described)
    parts = ['#include "runtime.h"', _levels(levels)]
    methods = []
    for number, name in enumerate(described[levels[0]]):
        each = [described[level][name] for level in levels]
        parts.append(_entry(number, name.partition(".")[2], each))
        own = name.rpartition(".")[2]
        methods.append(f'    {{"{own}", (PyCFunction)(void (*)(void))call_{number}, METH_FASTCALL, NULL}},')
    parts.append(MODULE.replace("@entries@", "\n".join(methods)).replace("@sources@", sources))
    return "\n".join(parts)


def _levels(levels: list[str]) -> str:
    """The table of levels, and which of them this processor can run."""
    lines: list[str] = []
    for level in levels:
        needs = " && ".join(f'__builtin_cpu_supports("{feature}")' for feature in X86_LEVELS.get(level, ()))
        lines.append(f"    if (index == {len(lines)}) return {needs or '1'};")
    start = "__builtin_cpu_init();" if set(levels) <= set(X86_LEVELS) else ""
    names = ", ".join(f'"{level}"' for level in levels)
    return (
        f"static const char *const LEVELS[] = {{{names}}};\n#define LEVEL_COUNT {len(levels)}\n"
        "static int level = 0;\n"
        f"static int can_run(int index) {{\n    {start}\n" + "\n".join(lines) + "\n    return 0;\n}\n"
    )


def _entry(number: int, name: str, described: list[dict[str, Any]]) -> str:
    """The function that Python calls: read the arguments, run the kernel of the level, return its result."""
    first = described[0]
    given = first["parameters"]
    types, values = [], []
    for i, each in enumerate(given):
        kind, axes = KIND[each["scalar"]], each["dimensions"]
        if axes:
            types += ["void *", "void *", "int64_t", "int64_t", "void *", *["int64_t"] * (2 * axes)]
            values += ["NULL", "NULL", f"a[{i}].size", str(ITEM[each["scalar"]]), f"a[{i}].data"]
            values += [f"a[{i}].{part}[{k}]" for part in ("shape", "strides") for k in range(axes)]
        else:
            types.append(IN_C[each["scalar"]])
            values.append(f"a[{i}].{kind}")
    table = ", ".join(
        f"{{\"{each['name']}\", '{KIND[each['scalar']]}', {each['dimensions']}, {int(each['written'])}}}"
        for each in given
    )
    result, answer = _result(first["returns"])
    kernels = ", ".join(each["symbol"] for each in described)
    declared = "\n".join(
        f"extern int {each['symbol']}(void *, void **, {', '.join(types)});" for each in described
    )
    count = len(given)
    return f"""{declared}
static PyObject *call_{number}(PyObject *self, PyObject *const *given, Py_ssize_t count) {{
    static const Parameter parameters[{count}] = {{{table}}};
    static int (*const kernels[])(void *, void **, {", ".join(types)}) = {{{kernels}}};
    Argument a[{count}];
    {result} result;
    void *error = NULL;
    int code;
    if (!read_arguments("{name}", given, count, {count}, parameters, a)) return NULL;
    memset(&result, 0, sizeof result);
    Py_BEGIN_ALLOW_THREADS
    code = kernels[level](&result, &error, {", ".join(values)});
    Py_END_ALLOW_THREADS
    release(a, {count});
    if (code) return failed("{name}", code);
    {answer}
}}
"""


def _result(returns: str | list[str]) -> tuple[str, str]:
    """The C type of a result, and the statement that returns it to Python."""
    if returns == "none":
        return "void *", "Py_RETURN_NONE;"
    if returns == "float64":
        return "double", "return PyFloat_FromDouble(result);"
    if returns == "int64":
        return "int64_t", "return PyLong_FromLongLong(result);"
    if returns == "boolean":
        return "uint8_t", "return PyBool_FromLong(result);"
    fields = " ".join(f"{IN_C[each]} f{i};" for i, each in enumerate(returns))
    letters = "".join(BUILD[each] for each in returns)
    taken = ", ".join(
        f"result.f{i}" if each == "float64" else f"(long long)result.f{i}" for i, each in enumerate(returns)
    )
    return f"struct {{ {fields} }}", f'return Py_BuildValue("({letters})", {taken});'


MODULE = r"""
static PyObject *use(PyObject *self, PyObject *name) {
    PyObject *text = PyUnicode_AsASCIIString(name);
    if (!text) return NULL;
    int found = -1;
    for (int i = 0; i < LEVEL_COUNT; i++)
        if (!strcmp(PyBytes_AsString(text), LEVELS[i])) found = i;
    Py_DECREF(text);
    if (found < 0) return PyErr_Format(PyExc_ValueError, "the library of kernels has no level %R", name);
    if (!can_run(found)) return PyErr_Format(PyExc_ValueError, "this processor cannot run level %R", name);
    level = found;
    Py_RETURN_NONE;
}

static PyObject *level_name(PyObject *self, PyObject *none) { return PyUnicode_FromString(LEVELS[level]); }

static PyMethodDef FUNCTIONS[] = {
    {"use", use, METH_O, "Choose the level of processors whose code runs."},
    {"level", level_name, METH_NOARGS, "The level of processors whose code runs."},
@entries@
    {NULL, NULL, 0, NULL},
};

static int start(PyObject *module) {
    for (level = 0; level < LEVEL_COUNT && !can_run(level); level++) {}
    if (level == LEVEL_COUNT) {
        PyErr_Format(PyExc_ImportError, "the kernels need a newer processor than this, at least %s",
                     LEVELS[LEVEL_COUNT - 1]);
        return -1;
    }
    return PyModule_AddStringConstant(module, "sources", "@sources@");
}

static PyModuleDef_Slot SLOTS[] = {{Py_mod_exec, start}, {0, NULL}};
static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_compiled", NULL, 0, FUNCTIONS, SLOTS, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__compiled(void) { return PyModuleDef_Init(&MODULE); }
"""
