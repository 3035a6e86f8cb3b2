"""Files behind URLs: object stores, web servers and all else that fsspec reads.

A `Remote` is a folder at a URL (`remote`); `locate` opens one by its URL, `web` guards HTTP. `urls`
recognises the URL in a path, `lease` admits one writer, `mirror` copies small folders,
`block_cache` keeps what was read, and `sources` opens such a path for readers of images.
"""
