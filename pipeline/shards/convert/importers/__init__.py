"""Features that other programs wrote become feature sets.

Read `import_features` first (the call), then `source` (what a layout must give, and how its rows
are written). Each other module reads one family of layouts: `arrays`, `bottom_up`, `groups`. A
layout module only reads; it writes nothing and unpickles nothing.
"""
