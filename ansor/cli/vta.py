"""`ansor vta`: its options.  The work is done by vta_sim, which is found through the registry."""

from __future__ import annotations

import argparse
from typing import Any

from te_lite.errors import require

from ..core.errors import TaskError
from ..core.target.registry import front_end
from ..core.values.checks import checked_seed
from . import budget
from .written import checked_log

NAME = "vta"
NETWORKS = ("resnet-18", "mobilenet")
LOGS = {"resnet-18": "vta.resnet18_v1.log", "mobilenet": "vta.mobilenet.log"}


def add_parser(commands: Any) -> None:
    """Add the command to the subcommands of a parser."""
    vta = commands.add_parser(NAME, help="the simulated accelerator: tune a network on it, see what a program does")
    vta.set_defaults(run=run_vta)
    actions = vta.add_subparsers(dest="action", required=True)

    tune = actions.add_parser("tune", help="tune a network's layers, run it in int8 and check it")
    budget.add_budget(tune, 320, "configurations")
    searches = "template (default): knobs of the convolutions' template; sketch: programs of every kernel, without one"
    tune.add_argument("--search", choices=("template", "sketch"), default="template", help=searches)
    networks = "resnet-18 (default) or mobilenet; template tunes the convolutions of resnet-18 alone"
    tune.add_argument("--network", choices=NETWORKS, default=NETWORKS[0], help=networks)
    tune.add_argument("--tuner", default="xgb", help="of templates: xgb (default), ga, random or gridsearch")
    logs = "where records go; one that exists is continued (default: vta.resnet18_v1.log, or .sketches.json)"
    tune.add_argument("--log", help=logs)
    tune.add_argument("--image-size", type=int, default=224, metavar="N", help="height and width (default: 224)")
    tune.add_argument("--config", metavar="FILE", help="a vta_config.json (default: the default machine)")
    tune.add_argument("--seed", type=int, help="draws weights and the image, and makes the candidates repeatable")

    line = actions.add_parser("timeline", help="draw when each module of the machine works for one convolution")
    line.add_argument("layer", help="C2 to C11 of ResNet-18, or numbers H,W,CI,CO,K,pad,stride")
    knobs = "tile_h,tile_w,tile_ci,tile_co,oc_nthread,h_nthread (default: the best record of --log, else default tiles)"
    line.add_argument("--knobs", metavar="N,N,N,N,N,N", help=knobs)
    line.add_argument("--log", help="a log of `ansor vta tune`")
    programs = "template (default), or sketch: the program of the fewest cycles that sketches have"
    line.add_argument("--search", choices=("template", "sketch"), default="template", help=programs)
    line.add_argument("--config", metavar="FILE", help="a vta_config.json (default: the default machine)")
    line.add_argument("-o", "--output", help="also write the picture, an SVG file with the text of each instruction")


def run_vta(args: argparse.Namespace) -> int:
    """Run the command; gives its exit code.  Raises TaskError for numbers that make no sense."""
    if args.action == "tune":
        budget.check_budget(args)
        budget.settle(args, tasks=1, done=0)
        law = "templates tune resnet-18 alone; use --search sketch"
        require(args.search == "sketch" or args.network == NETWORKS[0], TaskError, "--network", law, got=args.network)
        args.log = args.log or LOGS[args.network].replace(
            ".log", ".sketches.json" if args.search == "sketch" else ".log"
        )
        checked_log(args.log)
        if args.seed is not None:
            checked_seed("--seed", args.seed)
    code: int = getattr(front_end("vta_sim.cli", NAME), args.action)(args)
    return code
