"""Feature sets to and from other machines: `pipeline shards push` and `pull` call this package.

Read `push` and `pull` first, then `contents` (what is known of a shared set's files), `download`
(bytes that arrive: resumed, bounded, verified), `rows` (single rows of remote shards). A `Remote`
is a folder of a file system of fsspec; `locate` opens one by its URL, `web` guards HTTP.
"""
