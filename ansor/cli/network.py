"""`ansor tune-network`: its options.  The work is done by relay_lite, which is found through the registry."""

from __future__ import annotations

import argparse
from typing import Any

from te_lite.errors import require

from ..core.errors import TaskError
from ..core.target.registry import front_end
from ..core.target.target import HALVES, PRECISIONS
from ..core.values.checks import checked_seed
from . import budget, user_code
from . import devices as cli_devices
from .extensions import add_extensions
from .written import checked_log

NAME = "tune-network"
PRECISION = (
    "of products: strict (default); fp32x3, tf32: in float32 on tensor cores (GPUs); fp16, bf16: factors of 16 bits, "
    "summed up in float32"
)


SEED = "draws weights and inputs, and the first candidates; later ones also follow from the times that were measured"


def add_parser(commands: Any) -> None:
    """Add the command to the subcommands of a parser."""
    parser = commands.add_parser(NAME, help="tune all tasks of a network, compile it and see what it takes")
    parser.add_argument("network", nargs="?", help="a name, such as resnet-18, bert-base; or a file, .onnx or .pt2")
    model = "instead of it a function, of a module or .py file, that gives a PyTorch model and a tuple of inputs"
    parser.add_argument("--torch", metavar="MODULE:FUNCTION", help=model)
    parser.add_argument("--target", default="c", help="what to compile for (default: c)")
    budget.add_budget(parser, 200, "programs")
    budget.add_effort(parser)
    add_extensions(parser)
    parser.add_argument("--devices", help=cli_devices.OPTION)
    parser.add_argument("--log", help="where records go (default: by network and target); one that exists is continued")
    parser.add_argument("--layout", default="NHWC", help="NHWC (default) or NCHW")
    parser.add_argument("--precision", choices=(*PRECISIONS, *HALVES), help=PRECISION)
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--image-size", metavar="N[xN]", help="height and width, where they are free")
    shape = "the extents of an input of an ONNX model, for those that it leaves open"
    parser.add_argument("--shape", action="append", default=[], metavar="INPUT=N,N", help=shape)
    parser.add_argument("--fix", action="append", default=[], metavar="INPUT=VALUE", help="fix an ONNX model's input")
    parser.add_argument("--seed", type=int, help=SEED)
    parser.add_argument("--verbose", type=int, choices=(0, 1, 2), default=1, help="0 only results, 2 everything")
    user_code.add_import(parser)
    parser.add_argument("--export", metavar="FOLDER", help="also store the compiled network in a new folder")
    parser.set_defaults(run=tune_network)


def tune_network(args: argparse.Namespace) -> int:
    """Run the command; gives its exit code.  Raises TaskError for numbers that make no sense."""
    budget.check_budget(args)
    require(args.batch_size >= 1, TaskError, "--batch-size", "a positive number is needed", got=args.batch_size)
    if args.seed is not None:
        checked_seed("--seed", args.seed)
    if args.log is not None:
        checked_log(args.log)
    both = (args.network is None) == (args.torch is None)
    require(not both, TaskError, NAME, "either a network or --torch is needed", network=args.network, torch=args.torch)
    args.program = None if args.torch is None else _program(args.torch)
    args.devices = cli_devices.devices_of(args.devices)
    args.image_size = None if args.image_size is None else _extents("--image-size", args.image_size)
    args.shape = dict([_named_shape(text) for text in args.shape])
    return int(front_end("relay_lite.tuning.cli", NAME).tune_network(args))


def _program(text: str) -> Any:
    """The program that PyTorch exports of a model, which `MODULE:FUNCTION` gives with inputs; its weights are bound."""
    law = "a module and a function are needed, as in package.module:function"
    require(":" in text, TaskError, "--torch", law, got=text)
    found = user_code.function_of(text)()
    law = "the function must give a model and a tuple of inputs"
    require(isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], tuple), TaskError, text, law)
    return front_end("relay_lite.pytorch.module", "--torch").traced(*found)


def _extents(option: str, text: str) -> tuple[int, ...]:
    parts = [p.strip() for p in text.replace("x", ",").split(",")]
    ok = all(p.isascii() and p.isdecimal() and int(p) > 0 for p in parts)
    require(ok, TaskError, option, "positive numbers with x or commas between them are needed", got=text)
    return tuple([int(p) for p in parts])


def _named_shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, numbers = text.rpartition("=")
    require(name, TaskError, "--shape", "an input and its extents are needed, as in data=1,3,224,224", got=text)
    return name, _extents("--shape", numbers)
