"""Image features: decode, resize and crop a file, and run a network up to the layer that is read.

Read `extract` first, the job of `pipeline extract`, then `image_source` (images as rows of a
feature set) and `batches`, its loop. `decode` and `transforms` produce a network's input;
`backbones`, `weights`, `tap` and `network` produce the row. `feature_extractor` does the same in
memory for a few images. Recipes are data of `pipeline.images.recipes`; `pipeline.store.jobs` makes
feature sets, so there is no HDF5 here.
"""
