"""Audio features: MFCC, bags of sound words, and a pretrained network.

Read `read_sound` and `mfcc` first (from a file to windows of coefficients), then `recipes`, `words`
(the codebook and its bags), `sound_source` (sounds as rows of a feature set) and `extract_sound`
(the job). `pipeline.clips.clip_file` opens files.
"""
