"""Word vectors: loaded from many formats, trained, and stored in our own.

Read `store` first, the job of `pipeline vectors`. `sources` dispatches each source to the module of
its format; `train` trains vectors on a `corpus`; `stored` is the project's own file.
"""

from pipeline.text.vectors.package import GLOVE_PACKAGE
from pipeline.text.vectors.sources import lists_general_words, load_vectors
from pipeline.text.vectors.stored import SUFFIX as STORED_SUFFIX
from pipeline.text.vectors.stored import save_vectors
from pipeline.text.vectors.table import VectorsError, WordVectors

__all__ = [
    "GLOVE_PACKAGE",
    "STORED_SUFFIX",
    "VectorsError",
    "WordVectors",
    "lists_general_words",
    "load_vectors",
    "save_vectors",
]
