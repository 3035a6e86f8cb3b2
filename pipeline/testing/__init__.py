"""Test suites that other packages inherit and run with pytest; see docs/bring_your_own.md."""

from pipeline.testing.backbones import BackboneSuite as BackboneSuite
from pipeline.testing.encoders import EncoderCase as EncoderCase
from pipeline.testing.encoders import EncoderSuite as EncoderSuite
from pipeline.testing.heads import HeadCase as HeadCase
from pipeline.testing.heads import HeadSuite as HeadSuite
from pipeline.testing.readers import ReaderCase as ReaderCase
from pipeline.testing.readers import ReaderSuite as ReaderSuite
