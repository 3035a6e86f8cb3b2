"""What regions add to the commands; see `stages.additions`."""

TITLE = "Regions, clips and language"

COMMANDS = {
    "propose": "stages.regions.propose:propose",
    "localize": "stages.regions.localize:localize",
}
HELP = {
    "propose": "Propose object boxes for the images of a dataset.",
    "localize": "Train heads on regions and phrases, and localize phrases.",
}
PREPARE = {
    "entities": "stages.regions.prepare_regions:entities",
    "regions": "stages.regions.prepare_regions:regions",
}
EXTRACT = {"regions": "stages.regions.extract_regions:ExtractRegions"}
EVALUATE = {"regions": "stages.regions.evaluate_localized:EvaluateLocalized"}
SEARCH = {"regions": "stages.regions.search_regions:SearchRegions"}
LIST_RECIPES = {"regions": "stages.regions.listing:recipes"}
