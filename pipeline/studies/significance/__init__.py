"""Statistical significance: intervals, paired tests, warnings for small galleries."""
