"""Tokenization of captions.

Read `tokenizer` first: the steps, and the tokenizers of the papers by name. `treebank` splits;
`stop_words` and `lemmas` have the lists and rules of later steps.
"""
