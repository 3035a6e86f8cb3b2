"""Files behind URLs: object stores, web servers and all else that fsspec reads.

A `Remote` is a folder there (`remote`); `locate` opens one by its URL, `web` guards HTTP. `urls`
recognises the URL in a path, `lease` admits one writer, `mirror` copies small folders,
`block_cache` keeps what was read, and `sources` reads such a path as readers of images need it.
"""
