"""Our form of ASPIRE, in the order of reading.

`algorithm` has the settings of `AspireModels`, `messages` what is asked, `worker` how it is answered, `local`
with local steps; `master` an iteration. Models are those of `full` batches or `sampled` ones, with `kernels`
for their arithmetic. `clipping` bounds what a worker can do, `stopping` ends a run and proves what it can,
`private` is worker and master of a private run.
"""
