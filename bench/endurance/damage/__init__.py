"""Seeded, format-aware damage to files, which checksums or parsers may not detect.

Read `formats` first, which selects the damage. `raw` modifies bytes and lines of any file
(`tests.images.fuzz` has more for images); the other modules modify contents: `json_values`,
`markup` (XML and YAML), `arrays` (NumPy, safetensors, archives) and `hdf5`. A seed always produces
the same damage, so the order of random draws must not change.
"""
