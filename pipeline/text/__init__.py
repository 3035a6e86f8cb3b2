"""Captions to feature rows: tokenizers, word vectors, sentence encoders.

Read `encode` first, the job of `pipeline text`: `encoder_plans` plans an encoder by its name,
`fitting` fits it to the training captions, `caption_source` has captions as rows of a feature set.
`fitted` reads an encoder again, for new sentences. Images and heads have no place here.
"""
