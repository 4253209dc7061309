"""Lower the kernels of a file to LLVM's bitcode, once for all processors: numba's part of the work.

Each function is typed and lowered once in a process, and nothing is optimised or made callable: that
`emit` does, for all of a file's kernels together. numba would do both for every function by itself, and again
for each of its callers. The parts of numba that are replaced here are not documented; pyproject.toml pins
the version that a wheel is built with, and where another has changed them numba compiles kernels itself.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from uncertainty_sets.kernels.native import shim


def prepare() -> None:
    """Set numba up for lowering alone; in a process of its own, before numba is imported."""
    if "numba" in sys.modules:
        raise RuntimeError("numba was imported before it could be set up to lower kernels")
    os.environ.update(
        FDRO_JIT="1", NUMBA_DISABLE_INTEL_SVML="1", NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES=""
    )
    import llvmlite.binding as llvm
    from llvmlite import ir as llvm_ir
    from numba import _dynfunc
    from numba.core import cgutils, codegen, cpu, ir
    from numba.core.runtime import nrtdynmod

    from uncertainty_sets.kernels.native import by_numba

    by_numba.kept = False  # nothing that can be called is made

    def add_ir_module(self: Any, module: Any) -> None:
        parsed = llvm.parse_assembly(cgutils.normalize_ir_text(str(module)))
        parsed.name = module.name
        parsed.data_layout = self._codegen._data_layout
        self._final_module.link_in(parsed)

    def finalize(self: Any) -> None:
        self._finalized = True

    def get_executable(self: Any, library: Any, fndesc: Any, env: Any) -> Any:
        name = fndesc.qualname.rpartition(".")[2]
        return _dynfunc.make_function(fndesc.lookup_module(), name, "lowered only", 1, env, (library,))

    compiler: Any = importlib.import_module("numba.core.dispatcher")._FunctionCompiler
    customize = compiler._customize_flags

    def without_wrappers(self: Any, flags: Any) -> Any:
        flags = customize(self, flags)
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        return flags

    def count(module: Any, op: str, ordering: str) -> Any:
        """What counts the references to an array, here without atomic instructions.

        Those cost a short row more than its arithmetic, and arrays that a kernel makes are of one thread; its
        arguments are not counted.
        """
        word = llvm_ir.IntType(64)
        made = llvm_ir.Function(module, llvm_ir.FunctionType(word, [word.as_pointer()]), f"nrt_atomic_{op}")
        builder = llvm_ir.IRBuilder(made.append_basic_block())
        found = getattr(builder, op)(builder.load(made.args[0]), llvm_ir.Constant(word, 1))
        builder.store(found, made.args[0])
        builder.ret(found)
        return made

    nrtdynmod._define_atomic_inc_dec = count

    variable = ir.Var
    plain = {str, int, float, bool, type(None), ir.Loc}

    def variables(self: Any, value: Any) -> list[Any]:
        """What numba's own does, which takes a tenth of the whole time: most values are plain."""
        if type(value) in plain:
            return []
        if isinstance(value, variable):
            return [value]
        if isinstance(value, ir.Inst):
            return value.list_vars()  # type: ignore[no-any-return]  # numba has no types
        inner = value.values() if isinstance(value, dict) else value
        if not isinstance(value, dict | list | tuple):
            return []
        found: list[Any] = []
        for each in inner:
            if type(each) is variable:
                found.append(each)
            elif type(each) not in plain:
                found += variables(self, each)
        return found

    ir.Inst._rec_list_vars = variables
    library = codegen.CPUCodeLibrary
    library.add_ir_module, library.finalize = add_ir_module, finalize
    library._get_module_for_linking = lambda self: self._final_module
    codegen.CPUCodegen._check_llvm_bugs = lambda self: None
    cpu.CPUContext.get_executable = get_executable
    compiler._customize_flags = without_wrappers


def lower(module: str) -> tuple[bytes, dict[str, Any]]:
    """Return the bitcode of a file of kernels, and for each entry its symbol, parameters and results.

    Args:
        module: the dotted name of the file.
    """
    import llvmlite.binding as llvm

    from uncertainty_sets.kernels import jit

    importlib.import_module(module)
    described: dict[str, Any] = {}
    libraries: dict[int, Any] = {}
    for name in [each for each in jit.ENTRIES if each.rpartition(".")[0] == module]:
        found = _lower_entry(name)
        _collect(found.library, libraries)
        described[name] = {
            "symbol": found.fndesc.mangled_name,
            "parameters": [vars(each) for each in _parameters(name)],
            "returns": shim.results(name, found.signature.return_type),
        }
    linked = llvm.parse_assembly("")
    for each in libraries.values():
        raw = each._final_module
        if linked.name != module:
            linked = raw.clone()
            linked.name = module
        else:
            linked.link_in(raw, preserve=True)
    _keep_only({each["symbol"] for each in described.values()}, linked)
    return linked.as_bitcode(), described


def _parameters(name: str) -> list[shim.Parameter]:
    from uncertainty_sets.kernels import jit

    entry = jit.ENTRIES[name]
    made: Any = entry.function
    return shim.parameters(name, made.py_func, entry.writes)


def _lower_entry(name: str) -> Any:
    """Compile by numba's dispatcher, which keeps what it has compiled for the entry's callers."""
    from numba.core import sigutils

    from uncertainty_sets.kernels import jit

    made: Any = jit.ENTRIES[name].function
    types = sigutils.normalize_signature(f"({', '.join(each.numba for each in _parameters(name))},)")[0]
    made.compile(types)
    return made.overloads[types]


def _collect(library: Any, found: dict[int, Any]) -> None:
    """Add a function's code and that of all that it calls."""
    if id(library) not in found:
        found[id(library)] = library
        for each in library._linking_libraries:
            _collect(each, found)


def _keep_only(symbols: set[str], module: Any) -> None:
    """Hide everything else inside the module, and remove what nothing calls."""
    from uncertainty_sets.kernels.native.emit import drop_unused

    for function in module.functions:
        if not function.is_declaration and function.name not in symbols:
            function.linkage = "internal"
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
    drop_unused(module)
