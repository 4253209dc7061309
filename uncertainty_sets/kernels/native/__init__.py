"""Kernels in machine code: found, made and kept.

| file | does |
|---|---|
| `library` | finds the library of a file of kernels, or has it made when a kernel is called |
| `sources` | says what a file of kernels depends on |
| `cache` | keeps what was made, for all checkouts and wheels of a user |
| `build` | makes libraries: `lower` (numba), `emit` (LLVM), `shim` (C, with `runtime.h`) |
| `by_numba` | kernels that numba compiles in the process, where no library can be made |

`python -m uncertainty_sets.kernels.native` (`make kernels`) makes what is missing.
"""
