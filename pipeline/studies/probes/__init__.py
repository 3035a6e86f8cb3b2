"""What embeddings encode beyond recall: presence, counts, relations, and wrong captions.

`probe.py` runs everything on a searcher; read it first. `linear.py` fits linear probes to image
embeddings, `foils.py` generates wrong captions, `robustness.py` counts how often images are nearer
to the right ones, and `probes_file.py` has file and table. Facts about images come from
`pipeline.datasets.image_truth` or from captions; no specific dataset is known here.
"""
