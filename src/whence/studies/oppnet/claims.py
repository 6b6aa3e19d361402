"""What the study of opportunistic networks demands besides what paper 001 prints (`claims.toml`); names.

Lifetimes are in minutes, 0 stands for none. Tables I and IV are in `whence.mobility.published` too: plans are
generated to them.
"""

from __future__ import annotations

from collections.abc import Iterator

from whence.studies.claims import (
    PROMISES_KEPT,
    Claim,
    Compared,
    Evidence,
    Labels,
    Relation,
    Take,
    Tolerance,
    load,
    printed,
    with_ours,
)

# A claim is a row, and rows are laid out by hand.
# fmt: off

BUSES, WALKERS = "buses", "walkers"
NAMES = {BUSES: "city buses", WALKERS: "Östermalm walkers"}
MODES = ("published", "safe")
REGISTRIES = {"barrier": "causal barrier", "delivered": "co-delivered", "pending": "pending"}
LIFETIMES = {BUSES: (0, 120, 60, 40, 20, 10), WALKERS: (20, 15, 10, 5)}
PLAN_TABLE = {BUSES: "Table I", WALKERS: "Table IV"}
COUNTS_TABLE = {BUSES: "Table II", WALKERS: "Table V"}
DELAYS_TABLE = {BUSES: "Table III", WALKERS: "Table VI"}
SKEW_VIOLATIONS = {5: "4 to 5", 30: "about 200"}  # seconds either way: in the prototype of the specification
BOUND = "a bound"
EXISTS = "it only has to be there"


def minutes(lifetime: object) -> str:
    """A lifetime as the paper writes it."""
    return "none" if lifetime == 0 else f"{lifetime}′"


_PRINTED = printed(load(__package__))


def paper(plan: str, name: str, lifetime: int) -> float | None:
    """What a table of the paper prints of an experiment: `receives`, `delay-mean`, ..."""
    table = DELAYS_TABLE if name.partition("-")[0] in ("delay", "latency", "age") else COUNTS_TABLE
    at = table[plan].replace("Table ", "table-")
    return _PRINTED.get(f"001-{at}-{name}-{lifetime or 'none'}")


REGION = {"latency": "latency-mean", "receives": "receives", "delay": "delay-mean", "ratio": "ratio"}
# By plan, what and lifetime: what the region of rates and set-up times is held to.
PRINTED = {
    plan: {
        name: {
            lifetime: value
            for lifetime in LIFETIMES[plan]
            if (value := paper(plan, of, lifetime)) is not None
        }
        for name, of in REGION.items()
    }
    for plan in (BUSES, WALKERS)
}


# Beyond the paper


SAFE: Labels = {"mode": "safe", "part": ("main", "skew", "trace")}


def _safe() -> Iterator[Claim]:
    for name, text, published, source, measure, where, take, unit in (
        (
            "expiries", "safe: expiries in any run on the same plans", 0,
            "predecessors die before their successors, and a timer is set: docs/barrier.md", "expiries",
            {**SAFE, "skew_s": 0}, Take.FARTHEST, "expiries",
        ),
        (
            "promises", "safe: runs with a trace that keep every promise", None,
            "causal order, FIFO, at most once, wrong clocks included: judged by the verifier, which knows no "
            "protocol", PROMISES_KEPT, SAFE, Take.SUM, "runs",
        ),
        (
            "findings", "safe: what the verifier found in them", 0, "nothing",
            "causal + fifo + duplicate + created + malformed", SAFE, Take.SUM, "findings",
        ),
    ):
        yield Claim(f"001-safe-{name}", text, published, source, measure, where=where, unit=unit,
                    evidence=Evidence.INVARIANT, take=take)
    yield Claim("001-safe-receives", "safe and published: difference of receives, same plan and seed", 0,
                "order is not the exchange's business: both modes carry the same messages", "receives",
                where={**SAFE, "skew_s": 0}, unit="receives", evidence=Evidence.INVARIANT, take=Take.FARTHEST,
                against={"mode": "published"})
    yield Claim("001-safe-barrier",
                "safe: a message's barrier over that as printed, mean entries, buses, 120′", None,
                "our earlier runs: safe barriers are pruned", "barrier_mean", where={"mode": "safe"},
                at={"part": "main", "plan": BUSES, "lifetime": 120}, unit="times",
                evidence=Evidence.REGRESSION, against={"mode": "published"}, compared=Compared.RATIO)


def _skew(skew_s: int, found: str) -> Claim:
    return Claim(
        f"001-published-skew-{skew_s}",
        f"published: violations with clocks ± {skew_s} s, all runs",
        1,
        f"section V-A says 0; our specification found {found} in a run",
        "causal",
        at={"part": "skew", "skew_s": skew_s, "mode": "published"},
        unit="violations",
        evidence=Evidence.PROTOTYPE,
        take=Take.SUM,
        relation=Relation.AT_LEAST,
        demanded=skew_s == 30,  # 4 to 5 in a run of five hours: a short one may have none
        excuse=EXISTS,
    )


def _bounded(lifetime: int, mode: str, registry: str) -> Claim:
    return Claim(
        f"001-figure-11-{registry}-{mode}-{lifetime}",
        f"Figure 11: {mode}, {minutes(lifetime)}: {REGISTRIES[registry]} registries of the last third of the "
        "run, times those of the second", 1,
        "mean of the largest sizes of watched walkers: the population grows on, registries do not",
        f"growth_{registry}",
        at={"part": "registries", "plan": WALKERS, "lifetime": lifetime, "mode": mode, "registry": registry},
        unit="times", evidence=Evidence.INVARIANT, relation=Relation.AT_MOST,
        tolerance=Tolerance(absolute=0.25), excuse=BOUND)


def _capacity() -> Claim:
    return Claim("001-capacity", "co-deliveries with the smallest cache over those without a limit", 1,
                 "less room cannot carry more", "co_deliveries", where={"part": "capacity", "capacity": 20},
                 against={"capacity": 0}, compared=Compared.RATIO, unit="times", evidence=Evidence.INVARIANT,
                 relation=Relation.AT_MOST, excuse=BOUND)


CLAIMS = (
    *with_ours(__package__, _safe()),
    *(_skew(skew_s, found) for skew_s, found in SKEW_VIOLATIONS.items()),
    *(
        _bounded(lifetime, mode, registry)
        for lifetime in LIFETIMES[WALKERS]
        for mode in MODES
        for registry in REGISTRIES
    ),
    _capacity(),
    Claim("001-promises-capacity", "runs with limited caches that keep every promise", None,
          "a cache that drops what others wait for must not break order", PROMISES_KEPT,
          where={"part": "capacity"}, unit="runs", evidence=Evidence.INVARIANT, take=Take.SUM),
)
