"""Clips for browsers: unchanged, or remuxed to another container, never re-encoded."""

from pathlib import Path

from pipeline.clips.clip_file import open_clip, require_av
from pipeline.images.decoding.decode import UnusableImage

_AS_IT_IS = {"mov": "video/mp4", "matroska": "video/webm", "gif": "image/gif"}
_OF_BROWSERS = {
    "video/mp4": {"h264", "av1", "vp9"},
    "video/webm": {"vp8", "vp9", "av1"},
    "image/gif": {"gif"},
}
MP4 = "video/mp4"


def media_type(path: Path) -> tuple[str, bool]:
    """Return the media type of a clip for browsers, and whether it must be remuxed to MP4 first.

    ("", False) if browsers cannot play it: other codecs, or not a clip.
    """
    try:
        with open_clip(path, []) as clip:
            container = clip.container.format.name.split(",")[0]
            codec = clip.stream.codec_context.name
    except UnusableImage:
        return "", False
    kind = _AS_IT_IS.get(container, "")
    if codec in _OF_BROWSERS.get(kind, ()):
        return kind, False
    return (MP4, True) if codec == "h264" else ("", False)


def write_mp4(path: Path, out: Path) -> None:
    """Remux the video of an H.264 clip to an MP4 file, without its sound."""
    av = require_av()
    with open_clip(path, []) as clip, av.open(str(out), "w", format="mp4") as written:
        stream = written.add_stream_from_template(clip.stream)
        for packet in clip.container.demux(clip.stream):
            if packet.dts is not None:
                packet.stream = stream
                written.mux(packet)
