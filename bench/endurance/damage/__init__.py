"""Seeded damage to files, with respect to their format: what a checksum or a parser lets through.

Read `formats` first: its `damage` chooses. `raw` has damage to bytes and lines of any file
(`tests.images.fuzz` has more for pictures), the others damage to what files say: `json_values`,
`markup` (XML and YAML), `arrays` (NumPy, safetensors, archives) and `hdf5`. The same seed gives the
same damage, so that no draw of a random number may be moved.
"""
