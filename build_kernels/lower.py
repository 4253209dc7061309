"""Lower every entry of the packages to an object file for one level of processors.

`python -m build_kernels.lower FOLDER LEVEL CPU PACKAGE...`, in a process that numba has not been imported in:
the processor is decided when it is. Writes FOLDER/LEVEL/<entry>.o and FOLDER/LEVEL.json, their description.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from build_kernels import types as entry_types

FROM_C = {
    "acos", "asin", "atan", "atan2", "ceil", "cos", "cosh", "erf", "exp", "exp2", "expm1", "fabs", "floor",
    "fma", "fmod", "frexp", "hypot", "ldexp", "log", "log10", "log1p", "log2", "pow", "round", "sin", "sinh",
    "sqrt", "tan", "tanh", "memcmp", "memcpy", "memmove", "memset",
}  # fmt: skip
"""Functions of the C library and its mathematics."""

FROM_RUNTIME = {
    "NRT_MemInfo_alloc_aligned", "NRT_MemInfo_alloc_safe_aligned", "NRT_MemInfo_call_dtor", "NRT_Allocate",
    "NRT_Free", "numba_nextafter",
}  # fmt: skip
"""What runtime.h defines in place of numba's own runtime."""


FEATURES = {"x86-64-v4": "-prefer-256-bit"}
"""What LLVM would not use of a processor by itself: vectors of 512 bits, of which the kernels gain most."""


class NeedsNumba(RuntimeError):
    """A kernel uses a part of numba that exists only inside a Python process."""


def main(arguments: list[str]) -> int:
    """Lower the entries of these packages."""
    folder, level, cpu, *packages = arguments
    os.environ.update(
        FDRO_JIT="1",  # the kernels as numba compiles them
        NUMBA_CPU_NAME=cpu,
        NUMBA_CPU_FEATURES=FEATURES.get(cpu, ""),
        NUMBA_CACHE_DIR=str(Path(folder) / f"cache-{level}"),  # code loaded from a cache cannot be linked
    )
    into = Path(folder) / level
    into.mkdir(parents=True)
    found, problems = {}, []
    for name in entries(packages):
        try:
            found[name] = _lower(name, level, cpu, into)
        except (NeedsNumba, entry_types.UnsuitableEntry) as error:
            problems.append(str(error))
    if problems:  # all of them at once: a build takes minutes
        print("\n".join(problems), file=sys.stderr)
        return 1
    (Path(folder) / f"{level}.json").write_text(json.dumps(found))
    return 0


def entries(packages: list[str]) -> list[str]:
    """Return the names of all entries, after importing every module of kernels in these packages."""
    from uncertainty_sets import compiled
    from uncertainty_sets.kernels import jit

    for package in packages:
        folder = Path(importlib.import_module(package).__path__[0])
        for file in compiled.sources(folder):
            if file.is_relative_to(folder):
                parts = file.relative_to(folder.parent).with_suffix("").parts
                importlib.import_module(".".join(parts).removesuffix(".__init__"))
    wanted = os.environ.get("FDRO_KERNELS_ONLY", "")  # to try a part of the build
    return [name for name in jit.ENTRIES if name.partition(".")[0] in packages and wanted in name]


def arguments_of(name: str) -> Any:
    """Return the types of an entry's arguments, as numba's own objects."""
    from numba.core import sigutils

    from uncertainty_sets.kernels import jit

    entry = jit.ENTRIES[name]
    made: Any = entry.function
    taken = entry_types.parameters(name, made.py_func, entry.writes)
    return sigutils.normalize_signature(f"({', '.join(each.numba for each in taken)},)")[0]


def _lower(name: str, level: str, cpu: str, into: Path) -> dict[str, Any]:
    """Compile one entry, write its object, and describe it for `shim`."""
    from numba.core import compiler

    from uncertainty_sets.kernels import jit

    entry = jit.ENTRIES[name]
    made: Any = entry.function
    taken = entry_types.parameters(name, made.py_func, entry.writes)
    types = arguments_of(name)
    flags = compiler.Flags()
    made.targetdescr.options.parse_as_flags(flags, made.targetoptions)
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    result = compiler.compile_extra(made.typingctx, made.targetctx, made.py_func, types, None, flags, {})
    symbol = f"fdro_{name.replace('.', '_')}_{level}"
    _emit(result, name, symbol, cpu, into / f"{name}.o")
    return {
        "symbol": symbol,
        "parameters": [vars(each) for each in taken],
        "returns": entry_types.results(name, result.signature.return_type),
    }


def _emit(result: Any, name: str, symbol: str, cpu: str, file: Path) -> None:
    """Write the object: the entry under its own symbol, everything else hidden inside."""
    import llvmlite.binding as llvm

    module = result.library._final_module.clone()
    for function in module.functions:
        if function.name == result.fndesc.mangled_name:
            function.name = symbol
            function.visibility = "hidden"
        elif not function.is_declaration:
            function.linkage = "internal"
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
    _drop_unused(module)
    _check(name, module)
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(
        cpu=cpu, features=FEATURES.get(cpu, ""), opt=3, reloc="pic", codemodel="default"
    )
    file.write_bytes(machine.emit_object(module))


def _drop_unused(module: Any) -> None:
    """Remove what nothing calls now that only the entry is visible, so that the check sees what is used."""
    import llvmlite.binding as llvm

    tuning = llvm.PipelineTuningOptions(speed_level=0)
    machine = llvm.Target.from_default_triple().create_target_machine()
    builder = llvm.create_pass_builder(machine, tuning)
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)


def _check(name: str, module: Any) -> None:
    """Refuse a kernel that calls what neither C nor runtime.h has."""
    declared = [each for each in [*module.functions, *module.global_variables] if each.is_declaration]
    missing = {each.name for each in declared if not each.name.startswith("llvm.")} - FROM_C - FROM_RUNTIME
    if missing:
        raise NeedsNumba(
            f"{name} calls {', '.join(sorted(missing))}, which exist only where numba is loaded. Usual "
            "causes: np.dot, np.linalg and @ (write the loop), a raise or an assertion, reshape."
        )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
