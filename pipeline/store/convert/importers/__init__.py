"""Import of features written by other programs.

Read `import_features` first (the call), then `source` (the interface of a layout, and how its rows
are written). Each other module reads one family of layouts: `arrays`, `bottom_up`, `groups`,
`tables`. A
layout module only reads, and never unpickles.
"""
