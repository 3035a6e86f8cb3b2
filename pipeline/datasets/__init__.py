"""Captioned images or clips with splits, each read from its source into one `Manifest`.

Read `manifest` first (the dataset as all other packages see it), then one reader of `readers/`, all
based on `source`. `splits` selects the splits for training, validation and testing; `image_truth`
has facts about images that captions may omit. This package does not decode images.
"""
