"""croissant.json: a feature set as Croissant 1.0, the JSON-LD of dataset catalogues and hubs."""

from typing import Any

from pipeline.store.shards.index import FeatureIndex

CROISSANT_FILE = "croissant.json"

# The complete context of Croissant 1.0, as every file has it.
_TERMS = (
    "citeAs column conformsTo data dataType equivalentProperty examples extract field fileObject "
    "fileProperty fileSet format includes isLiveDataset jsonPath key md5 parentField path "
    "recordSet references regex repeated replace samplingRate separator source subField transform"
)
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    **{term: f"cr:{term}" for term in _TERMS.split()},
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
}


def croissant(
    index: FeatureIndex, sizes: dict[str, int], licence: str | None, source: str | None
) -> dict[str, Any]:
    """Return a set's JSON-LD: contents, and files with SHA-256 and size in bytes, from `sizes`."""
    header = index.header
    shape = " x ".join(map(str, header.row_shape))
    recipe = str(header.recipe.get("name", header.recipe_hash))
    stated = {"license": licence, "isBasedOn": source}
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": f"{header.dataset} {recipe}",
        "description": (
            f"{index.rows} rows of {shape} {header.dtype} (axes: {header.axes}), features of the "
            f"dataset {header.dataset} by the recipe {recipe}, with ids next to every row; "
            f"{index.failed_rows} failed rows hold NaN. Weights: {header.weights}."
        ),
        "version": "1.0.0",
        "citeAs": (
            f"features of {header.dataset}, weights {header.weights}, recipe hash "
            f"{header.recipe_hash}, content {index.content_sha256}"
        ),
        "keywords": ["features", "embeddings", "HDF5"],
        **{name: value for name, value in stated.items() if value},
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": entry.file,
                "name": entry.file,
                "description": f"rows {entry.first_row} to {entry.first_row + entry.rows - 1}",
                "contentUrl": entry.file,
                "contentSize": f"{sizes[entry.file]} B",
                "encodingFormat": "application/x-hdf5",
                "sha256": entry.sha256,
            }
            for entry in index.shards
        ],
    }
