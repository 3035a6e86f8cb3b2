"""Fisher vectors of word vectors (Klein et al. 2015; Perronnin et al. 2010).

Read `codebook` first: whitening and mixture, fitted once. `mixture` has the densities, `em` fits
them, `gradients` computes the row of a caption from its words. Tokenization is elsewhere.
"""
