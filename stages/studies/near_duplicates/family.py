"""What the search for near-duplicates adds to the commands; see `stages.additions`."""

TITLE = "Studies"

COMMANDS = {"duplicates": "stages.studies.near_duplicates.duplicates:duplicates"}
HELP = {"duplicates": "Find near-duplicate images, within a set or between two."}
EVALUATE = {"leaks": "stages.studies.near_duplicates.evaluate_leaks:EvaluateLeaks"}
