"""Seeded damage to files, with respect to their format: what a checksum or a parser lets through.

Read `formats` first: its `damage` chooses. `raw` has damage to bytes and lines of any file
(`tests.images.fuzz` has more for images), the others damage to what files contain: `json_values`,
`markup` (XML and YAML), `arrays` (NumPy, safetensors, archives) and `hdf5`. A seed produces the
same damage, so that no draw of a random number may be moved.
"""
