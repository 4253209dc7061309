"""From a file's bitcode to an object for one level of processors: LLVM's part of the work.

All kernels of a file and what they call are one module, optimised once. The passes and their order are those
of numba, so that kernels compute what numba's own form of them computes.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm

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


def emit(name: str, bitcode: bytes, symbols: dict[str, str], cpu: str) -> bytes:
    """Return the object of a file of kernels.

    Args:
        name: the file's dotted name, for errors.
        bitcode: what `lower` made.
        symbols: for each entry's symbol in the bitcode, its name in the object.
        cpu: what LLVM calls the level of processors.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_bitcode(bitcode)
    for symbol, exported in symbols.items():
        function = module.get_function(symbol)
        function.name, function.visibility = exported, "hidden"
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=cpu, features=FEATURES.get(cpu, ""), opt=3, reloc="pic", codemodel="default"
    )
    cheap = _builder(machine, 0)
    first = cheap.getModulePassManager()
    first.add_loop_rotate_pass()
    first.add_instruction_combine_pass()
    first.add_jump_threading_pass()
    first.add_refprune_pass()
    first.run(module, cheap)
    full = _builder(machine, 3)
    second = full.getModulePassManager()
    second.add_refprune_pass()
    second.run(module, full)
    drop_unused(module)
    _check(name, module)
    return machine.emit_object(module)  # type: ignore[no-any-return]  # llvmlite has no types


def _builder(machine: Any, speed: int) -> Any:
    tuning = llvm.create_pipeline_tuning_options(speed_level=speed)
    tuning.loop_vectorization = tuning.loop_interleaving = tuning.loop_unrolling = speed > 0
    tuning.slp_vectorization = False
    return llvm.create_pass_builder(machine, tuning)


def drop_unused(module: Any) -> None:
    """Remove what nothing calls."""
    machine = llvm.Target.from_default_triple().create_target_machine()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0))
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
