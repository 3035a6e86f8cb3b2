"""libtiff's reports: a reason of the one file that they are about, and nothing on stderr."""

import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from pipeline.images.decoding.decode import UnusableImage, decode
from pipeline.store.shards.format import UNREADABLE
from tests.images.odd_files import photo


def tiff(compression: str, image: Image.Image | None = None) -> bytes:
    buffer = io.BytesIO()
    (image or photo(0, 120, 80)).save(buffer, "TIFF", compression=compression)
    return buffer.getvalue()


def damaged(data: bytes, places: tuple[int, ...] = (20, 40, 60)) -> bytes:
    changed = bytearray(data)
    for place in places:
        changed[place] ^= 0xA5
    return bytes(changed)


FAX = tiff("group4", photo(0, 120, 80).convert("1"))


# Of the fax, Pillow returns pixels without a word.
@pytest.mark.parametrize("data", [FAX, tiff("tiff_lzw"), tiff("tiff_adobe_deflate")])
def test_an_error_of_libtiff_is_the_reason_and_is_not_written(
    data: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    decode(data)
    with pytest.raises(
        UnusableImage, match=r"libtiff: [A-Z].*scanline 0|libtiff: .* line \d"
    ) as raised:
        decode(damaged(data))
    assert raised.value.status == UNREADABLE
    assert capfd.readouterr().err == ""


def test_images_on_other_threads_and_after_it_are_not_blamed() -> None:
    good, bad = [FAX, tiff("tiff_lzw"), tiff("jpeg")], [damaged(FAX), damaged(tiff("tiff_lzw"))]
    whole = [np.asarray(decode(data)) for data in good]

    def read(number: int) -> bool:
        if number % 2:
            with pytest.raises(UnusableImage, match="libtiff: ") as raised:
                decode(bad[number // 2 % 2])
            assert raised.value.status == UNREADABLE
            return True
        kind = number // 2 % 3
        return bool((np.asarray(decode(good[kind])) == whole[kind]).all())

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(read, range(300)))
