"""Images to feature rows: a file is decoded, resized, cut, and goes through a network to its tap.

Read `extract` first, the job of `pipeline extract`, then `image_source` (images as rows of a
feature set) and `batches`, its loop. `decode` and `transforms` lead from a file to a network's
input; `backbones`, `weights`, `tap` and `network` from there to a row. `feature_extractor` does the
same for a few images, with nothing on disk. What a recipe says is data of `pipeline.recipes`;
feature sets are made by `pipeline.jobs`: no HDF5 here.
"""
