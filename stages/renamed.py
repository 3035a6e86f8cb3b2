"""Renamed options: an old name is an error that states the new one.

`--captions` is a file of captions, `--images` is images, `--regions` is a folder of proposals.
"""

RENAMED: dict[str, dict[str, str]] = {
    "scenes": {"--images": "--num-images"},
    "regions": {"--regions": "--table"},
    "train": {"--images": "--image-features", "--captions": "--caption-features"},
    "embed": {"--images": "--image-features", "--captions": "--caption-features"},
    "localize": {"--regions": "--region-features"},
    "report": {"--regions": "--task localization", "--captions": "--task captioning"},
    "search": {"--regions": "--localize"},
    "serve": {"--regions": "--localize", "--captions": "--language-model"},
}
"""Name of a command to its old options, each with the new one."""
