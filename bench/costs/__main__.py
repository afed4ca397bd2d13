"""`python -m bench.costs`: the tables of docs/capacity.md, with your prices and your rate."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields, replace

from bench.costs import tables
from bench.costs.prices import Prices
from local.stack.parts import ROOT

PAGE = ROOT / "docs" / "capacity.md"


def main(words: Sequence[str] | None = None) -> int:
    """Print the tables, or write them to the page."""
    arguments = parser().parse_args(words)
    if arguments.write:
        PAGE.write_text(tables.rendered(PAGE.read_text(encoding="utf-8"), Prices()), encoding="utf-8")
        return 0
    prices = replace(Prices(), **dict(arguments.price))
    print(tables.per_million(prices, arguments.rate or tables.RATES, arguments.streams))
    print(f"\n{tables.examples(prices, arguments.streams)}\n\n{tables.idle(prices, arguments.streams)}")
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    names = ", ".join(each.name for each in fields(Prices))
    made = argparse.ArgumentParser(prog="python -m bench.costs", description=__doc__, epilog=f"prices: {names}")
    made.add_argument("--rate", type=_rate, action="append", help="events a second; repeat it for further rows")
    made.add_argument("--streams", type=int, default=1, help="destinations that get each event (default: 1)")
    made.add_argument(
        "--price", type=_price, action="append", default=[], metavar="NAME=DOLLARS", help="a price of yours"
    )
    made.add_argument("--write", action="store_true", help="write the tables of docs/capacity.md again")
    return made


def _rate(text: str) -> float:
    rate = float(text)
    if rate <= 0:
        raise argparse.ArgumentTypeError("must be above 0")
    return rate


def _price(text: str) -> tuple[str, float]:
    name, _, dollars = text.partition("=")
    if name not in {each.name for each in fields(Prices)}:
        raise argparse.ArgumentTypeError(f"{name!r} is no price: see the end of --help")
    try:
        return name, float(dollars)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: write {name}=DOLLARS, such as {name}=1.5") from None


if __name__ == "__main__":
    sys.exit(main())
