"""`python -m bench.rest FIGURE`: what a gateway promises whoever runs it, measured at running gateways."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

from bench.rest import memory, starts
from bench.rest.calls import compare
from bench.rest.kills import Kill, kill_gateways
from bench.rest.listeners import compare_with_log
from bench.rest.listing import list_tools

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_TIMES, _MOST_SPREAD = 2.5, 5.0
_MOST_START_S = 3.0
_MOST_LIST_BYTES, _MOST_LIST_MS = 500_000, 300.0  # of 10,000 tools
_MOST_GROWTH = 0.02  # of the memory, in ten minutes at the pace of the second half


def main() -> int:
    """Measure what was asked for, print it, and return 1 where a promise does not hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.rest", description=__doc__)
    figures = parser.add_subparsers(dest="figure", required=True)
    kill = _figure(figures, "kill", _kill, "kill -9 between question and answer, and during the answer")
    kill.add_argument("--count", type=int, default=1000, help="how many gateways are killed")
    kill.add_argument("--stores", type=int, default=4, help="on how many data folders side by side")
    kill.add_argument("--command", action="store_true", help="start the real command each time, which takes longer")
    calls = _figure(figures, "calls", _calls, "calls of a native tool beside a bare Starlette endpoint")
    calls.add_argument("--count", type=int, default=5000, help="how many calls of each are sent")
    listen = _figure(figures, "listeners", _listeners, "listeners, each on its own run, while calls are in flight")
    listen.add_argument("--count", type=int, default=1000, help="how many listen")
    listen.add_argument("--in-flight", type=int, default=200, help="how many calls run at once")
    grow = _figure(figures, "memory", _memory, "memory under load: calls of all kinds, listeners, MCP clients")
    grow.add_argument("--seconds", type=float, default=600, help="for how long")
    begin = _figure(figures, "start", _start, "start to serving with ten sources of which three are dead")
    begin.add_argument("--count", type=int, default=5, help="how many starts of each kind")
    listed = _figure(figures, "tools", _tools, "a list of many tools as a summary with facets, and a filtered search")
    listed.add_argument("--count", type=int, default=10_000, help="how many tools there are")
    chosen = parser.parse_args()
    measure: Callable[[argparse.Namespace], bool] = chosen.measure
    return int(not measure(chosen))


def _figure(
    figures: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    measure: Callable[[argparse.Namespace], bool],
    about: str,
) -> argparse.ArgumentParser:
    parser = figures.add_parser(name, help=about, description=about)
    parser.set_defaults(measure=measure)
    return parser


def _kill(chosen: argparse.Namespace) -> bool:
    began = time.perf_counter()
    kills = kill_gateways(chosen.count, stores=chosen.stores, fork=not chosen.command)
    for moment in ("before the answer", "during the answer"):
        _tell_kills(moment, [kill for kill in kills if kill.moment == moment])
    for found, prompt in {kill.found: kill.prompt for kill in kills if kill.prompt}.items():
        print(f"a person was asked ({found}): {prompt}")
    print(f"{len(kills)} kills on {chosen.stores} stores in {time.perf_counter() - began:.0f} s")
    return all(kill.ran == 1 for kill in kills)


def _tell_kills(moment: str, kills: list[Kill]) -> None:
    ran = Counter(kill.ran for kill in kills)
    more = sum(count for times, count in ran.items() if times > 1)
    late = sum(kill.replied for kill in kills)
    print(f"{moment}: {len(kills)} kills, {late} of them after the reply")
    print(f"  the call ran once {ran[1]}, more often {more}, never {ran[0]}")
    for found, count in Counter(kill.found for kill in kills).most_common():
        print(f"  the next process found: {found} {count}")


def _calls(chosen: argparse.Namespace) -> bool:
    kept = True
    for found in compare(chosen.count):
        bare, ours = found["bare"], found["ours"]
        times, spread = ours.p50_ms / bare.p50_ms, ours.p99_ms / ours.p50_ms
        kept = kept and times <= _MOST_TIMES and spread <= _MOST_SPREAD
        print(
            f"{found['at_once']} at once: {ours.p50_ms:.2f} ms beside {bare.p50_ms:.2f} ms, {times:.2f} times; "
            f"p99 {ours.p99_ms:.2f} ms, {spread:.1f} times p50; "
            f"{ours.per_second:.0f} calls/s beside {bare.per_second:.0f}"
        )
    return kept


def _listeners(chosen: argparse.Namespace) -> bool:
    heard = compare_with_log(chosen.count, chosen.in_flight)
    print(
        f"{heard.listeners} listeners, {heard.most_in_flight} calls in flight, {heard.events} events: "
        f"{heard.lost} lost, {heard.doubled} doubled, {heard.out_of_order} listeners out of order"
    )
    return heard.lost == heard.doubled == heard.out_of_order == 0


def _memory(chosen: argparse.Namespace) -> bool:
    grown = memory.measure(chosen.seconds)
    step = max(1, len(grown.megabytes) // 20)
    print("MB:", " ".join(f"{size:.0f}" for size in grown.megabytes[::step]))
    middle, in_ten_minutes = statistics.median(grown.second_half), grown.slope * 10
    print(
        f"{grown.calls} calls in {grown.seconds:.0f} s; in the second half {middle:.1f} MB, "
        f"and {grown.slope:+.3f} MB a minute ({in_ten_minutes / middle:+.1%} in ten minutes)"
    )
    return in_ten_minutes <= _MOST_GROWTH * middle


def _start(chosen: argparse.Namespace) -> bool:
    kept = True
    for kind, found in zip(("first start", "known sources"), starts.measure(chosen.count), strict=True):
        slowest = max(one.ready_s for one in found)
        kept = kept and slowest < _MOST_START_S
        print(
            f"{kind}: ready after {statistics.median(one.ready_s for one in found):.2f} s, at most {slowest:.2f} s; "
            f"a native tool called after {statistics.median(one.called_s for one in found):.2f} s; "
            f"then {found[-1].up} of 10 sources were up, and {', '.join(found[-1].down)}"
        )
    return kept


def _tools(chosen: argparse.Namespace) -> bool:
    kept = True
    for kind, found in list_tools(chosen.count).items():
        is_slow = max(found.times_ms) > _MOST_LIST_MS or found.sent_bytes > _MOST_LIST_BYTES
        kept = kept and (found.is_first or not is_slow)
        print(
            f"{kind}: {found.tools} of {found.total} tools, {found.sent_bytes / 1e6:.3f} MB compressed "
            f"({found.bytes / 1e6:.2f} MB), {statistics.median(found.times_ms):.0f} ms, "
            f"at most {max(found.times_ms):.0f} ms"
        )
    return kept


if __name__ == "__main__":
    sys.exit(main())
