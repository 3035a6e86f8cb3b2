"""Phrase localization: which region of an image a phrase describes (Wang et al. 2016, section 3.3).

Read `localized` first (images, phrases and queries, and their file), then `measures` (recall,
average precision). `sources` opens the data, `train_localizer` trains heads on regions and phrases,
`mining` finds hard negatives, `localize` embeds the `queries` of a split, and
`evaluate_localization` computes the metrics. Boxes and proposals are in `pipeline.regions`; heads,
losses and the training job in `pipeline.heads`. No module here knows path conventions.
"""
