"""The tokenizers and word vectors of a plan's encoders."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pipeline.text.encoder_plans import LEMMAS, EncoderPlan, EncoderSpec
from pipeline.text.encoders.bag_of_words import tfidf_tokenizer
from pipeline.text.tokenizers.lemmas import Lemmatizer, RuleLemmatizer, load_wordnet
from pipeline.text.tokenizers.tokenizer import TOKENIZERS, Tokenizer
from pipeline.text.vectors import GLOVE_PACKAGE, WordVectors, load_vectors

_LEMMA_WORDS = 50_000  # most frequent words of GloVe; see `RuleLemmatizer`


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Tokenizers and word vectors of a plan's encoders, loaded on first use."""

    plan: EncoderPlan

    def tokenizer_of(self, spec: EncoderSpec) -> Tokenizer:
        """Return the tokenizer of an encoder of the plan that is not a library's model."""
        if spec.tokenizer == LEMMAS:
            return tfidf_tokenizer(self._lemmatizer)
        assert spec.tokenizer is not None
        return TOKENIZERS[spec.tokenizer]

    def words_of(self, texts: Iterable[str]) -> set[str]:
        """Return the words of captions that encoders with word vectors look up."""
        tokenizers = [self.tokenizer_of(spec) for spec in self.plan.specs if spec.takes_vectors]
        return {
            word for text in texts for tokenizer in tokenizers for word in tokenizer.tokenize(text)
        }

    def vectors_of(self, words: Collection[str] | None) -> WordVectors:
        """Load the plan's vectors of some words; None: of every word of the source."""
        assert self.plan.vectors is not None
        return load_vectors(self.plan.vectors, words)

    @cached_property
    def _lemmatizer(self) -> Lemmatizer:
        if self.plan.wordnet is not None:
            return load_wordnet(Path(self.plan.wordnet))
        return RuleLemmatizer(GLOVE_PACKAGE, load_vectors(GLOVE_PACKAGE).words[:_LEMMA_WORDS])
