"""What the parts promise each other, in the order of reading.

`problem` is what a worker has, `messages` what is sent, with `forms` and `replies` for their checks;
`algorithm` makes masters and workers, `engine` runs them, `observer` looks on. `settings` and `saved` state
settings and states once; `tuning` says what a search may vary; `failures` puts exceptions into words.
"""
