"""From a task to its record.

In the order in which one would read: `task`, `compare` (search, then repeat), `search` (what to try), `pool`
(processes), `perform` (one run); then what a run is made of: `methods`, `sets`, `models`, `parts`, `looks`,
`curves`, `stopping`, `backdoor`, and `plugins` of one's own.
"""
