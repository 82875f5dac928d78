"""How attention runs. Each module answers one `Call` with the same two functions, and none imports another.

- ``refuses(q, k, v, call)``: why this kernel cannot honour the call, or None;
- ``attend(q, k, v, call)``: the output and, when asked, the row statistics.

`dense` defines correctness; every other kernel is tested against it in float64.
"""
