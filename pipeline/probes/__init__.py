"""What embeddings hold beyond recall: presence, counts, relations, and captions that are wrong.

`probe.py` runs everything on a searcher; read it first. `linear.py` asks image embeddings questions
by linear probes, `foils.py` makes captions wrong, `robustness.py` counts whether images are nearer
to the right ones, and `probes_file.py` has file and table. What is true of images comes from
`pipeline.datasets.image_truth`, or from captions; no dataset is known by name here.
"""
