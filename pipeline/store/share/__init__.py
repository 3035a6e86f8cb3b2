"""Transfer of feature sets between machines: the functions of `pipeline shards push` and `pull`.

Read `push` and `pull` first, then `contents` (files of a shared set), `download` (resumed, bounded,
verified downloads), `rows` (single rows of remote shards).
"""
