"""Whether a difference is more than chance: intervals, paired tests, small-gallery warnings."""
