"""Images to feature rows: decode, resize and crop, backbones, the extraction loop."""
