"""The layouts of other programs: their names, for options and messages. Importing it is cheap."""

EXPORTS = {
    "npy": "a NumPy array and its ids as text; NAME_ims.npy: what VSE++ and SCAN read",
    "parquet": "a table with ids, splits, captions and vectors",
    "arrow": "the same table as Arrow IPC, also called Feather",
    "h5": "one HDF5 file, which points to the shards or is a copy",
    "safetensors": "features, and ids in the metadata",
    "vqa": "what pytorch-vqa reads",
}
SUFFIXES = {
    ".npy": "npy",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".h5": "h5",
    ".hdf5": "h5",
    ".safetensors": "safetensors",
}
"""Layout of an export whose file has this suffix, unless another is named."""

IMPORTS = {
    "npy": "*_ims.npy of VSE++ or SCAN",
    "mat": "Karpathy's vgg_feats.mat",
    "bottom-up": "the TSV with a fixed number of boxes, or a folder of .npz files",
    "groups": "HDF5 with a group an image",
}
# The array of a source that is imported unless another is named.
DEFAULT_ARRAYS = {"mat": "feats", "bottom-up": "features", "groups": "global_descriptor"}
