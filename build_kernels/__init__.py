"""Build the kernels ahead of time: numba lowers them to objects, a C compiler links them to a library.

Needed to build only; neither installed nor imported by the packages. In order:

| file | does |
|---|---|
| `lower` | compiles every kernel marked with `entry` to an object, in one process per processor level |
| `types` | says which types an entry may have, and how C writes them |
| `shim` | writes the C file through which Python calls the objects, on top of `runtime.h` |
| `library` | runs the others and the C compiler: one library `_compiled` per package |
| `trial` | installs a wheel in an environment of its own and runs the oracles' tests on it |
| `release` | checks version, changelog, working tree and tag before a release (`make release`) |

`python -m build_kernels` (`make kernels`) builds in place; `hatch_build.py` builds for a wheel. The packages
are searched for entries, so a kernel's file is all there is to edit. pyproject.toml pins numba for the build,
since `lower` uses parts of numba that are not documented.
"""
