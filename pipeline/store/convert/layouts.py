"""Names of the layouts of other programs, for options and messages; cheap to import."""

EXPORTS = {
    "npy": "a NumPy array and its ids as text; NAME_ims.npy: the layout of VSE++ and SCAN",
    "parquet": "a table with ids, splits, captions and vectors",
    "arrow": "the same table as Arrow IPC, also called Feather",
    "h5": "one HDF5 file, as references to the shards or as a copy",
    "safetensors": "features, and ids in the metadata",
    "vqa": "the HDF5 layout of pytorch-vqa",
    "kerchunk": "references to the shards, which fsspec, Zarr and xarray read",
    "zarr": "a Zarr group",
    "lance": "a Lance table, with the columns of parquet",
}
SUFFIXES = {
    ".npy": "npy",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".h5": "h5",
    ".hdf5": "h5",
    ".safetensors": "safetensors",
    ".json": "kerchunk",
    ".zarr": "zarr",
    ".lance": "lance",
}
"""Default layout of an export by the suffix of its file."""

IMPORTS = {
    "npy": "*_ims.npy of VSE++ or SCAN",
    "mat": "Karpathy's vgg_feats.mat",
    "bottom-up": "the TSV with a fixed number of boxes, or a folder of .npz files",
    "groups": "HDF5 with one group per image",
    "hdf5": "HDF5 with one dataset of rows and one of ids, or one dataset per image",
    "parquet": "a table with a column of vectors and one of ids",
    "safetensors": "a tensor of rows, with ids in the metadata",
}
# Default array of a source.
DEFAULT_ARRAYS = {"mat": "feats", "bottom-up": "features", "groups": "global_descriptor"}
