"""The project's benchmark: the same work on skimp, PyTorch and NumPy, in processes that take turns.

`make bench` runs `python -m bench`, which measures, keeps the results as JSON, and writes
docs/performance.md, the README's table and the charts from them. The files, in the order in which
data flows: `programs`, `micro`, `workloads` and `byhand` (the work), `catalogue` (all of it by
name), `engines` (how a process of each is started), `measure`, `clock` and `process` (inside it),
`worker` (the process from outside), `turns` (which works when), `limits`, `growth`, `importing`
and `run` (what is measured, in which order), `machine` and `results` (what is kept), `goals` and
`verdict` (what is wanted, and whether it is so), `markdown`, `tables`, `charts`, `method` and
`page` (what is shown).
"""
