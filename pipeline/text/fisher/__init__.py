"""Fisher vectors of word vectors (Klein et al. 2015; Perronnin et al. 2010).

Read `codebook` first: whitening and mixture, fitted once. `mixture` has the densities, `em` fits
them, `gradients` turns the words of a caption into its row. How captions become words stays out.
"""
