"""What the studies add to the commands; see `stages.additions`."""

TITLE = "Studies"

COMMANDS = {
    "compare": "stages.studies.compare:compare",
    "probe": "stages.studies.probe:probe",
}
HELP = {
    "compare": "Test whether one system is better than another.",
    "probe": "Test embeddings with linear probes and wrong captions.",
}
PREPARE = {
    "scenes": "stages.studies.prepare_scenes:scenes",
    "moving-scenes": "stages.studies.prepare_scenes:moving_scenes",
}
EVALUATE = {"relevance": "stages.studies.evaluate_relevance:EvaluateRelevance"}
SEARCH = {"regularities": "stages.studies.search_regularities:SearchRegularities"}
