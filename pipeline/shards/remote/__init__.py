"""Feature sets to and from other machines: `pipeline shards push` and `pull` call this room.

Read `push` and `pull` first, then `contents` (what is known of a shared set's files), `download`
(bytes that arrive, broken off, go on and are checked), `rows` (single rows of remote shards). A
`remote` is a place with files: `http_remote`, `folder_remote`; `locate` opens one by its URL.
"""
