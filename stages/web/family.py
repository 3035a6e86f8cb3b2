"""What pages and the server add to the commands; see `stages.additions`."""

TITLE = "Web"

COMMANDS = {"report": "stages.web.report:report", "serve": "stages.web.serve:serve"}
HELP = {
    "report": "Join the recall tables of all experiments, with HTML pages.",
    "serve": "Search with an experiment on a local web page.",
}
EVALUATE = {"published": "stages.web.evaluate_published:EvaluatePublished"}
