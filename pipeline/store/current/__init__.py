"""Whether an output is current: one answer for every output of every command.

An output is made from option objects and from other files. Its *record* has both, as JSON: every
field of the options that can change a byte, and digests of the inputs. Files carry it: shards in
the header, a head in `head.json`, embeddings in the provenance, a table in its JSON. `record`
compares it with the record of a request (`made_from`); the first difference is the reason to
compute the output (`stale`).

Rows have CRCs of their sources in the shards, which `pipeline.store.jobs` compares. Since reading
them takes minutes, `snapshot` stores the identities of all files once a call has found everything
current; until one changes, the same call returns at once. `replace` moves outputs of other options
aside and back, and swaps an output with its successor.
"""
