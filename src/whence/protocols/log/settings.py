"""The parameters of protocol `log`; docs/log.md says what each is for."""

from __future__ import annotations

from whence.core.parameters import Parameters, anything, choice, flag, whole
from whence.protocols.barrier.order import LIFETIME_MAX_US
from whence.protocols.log.retention import PARAMETERS as RETENTION

PARAMETERS = Parameters(
    flag("lifetimes", default=False),
    whole("lifetime_us", None, 1, LIFETIME_MAX_US, optional=True),
    whole("skew_us", 0, 0, LIFETIME_MAX_US),
    choice("history", "all", ("all", "new")),
    *RETENTION,
    flag("stability", default=False),
    flag("chain", default=False),  # a hash chain through each life: forks show
    flag("reads", default=False),  # the host says `done`; else what is delivered is read
    choice("exchange", "log", ("log", "random")),
    whole("gap_us", 125_000, 1, LIFETIME_MAX_US),
    whole("setup_max_us", 10_000_000, 0, LIFETIME_MAX_US),
    whole("seed", 1, 0, LIFETIME_MAX_US),
    whole("window", 256, 1, 1 << 20),
    whole("cork_us", 0, 0, LIFETIME_MAX_US),  # own messages wait this long for company; 0: they do not
    whole("held_max", 10_000, 1, 1 << 30),
    whole("streams_max", 200_000, 1, 1 << 30),
    whole("streams_per_minute", 100_000, 1, 1 << 30),  # new ones that one peer may name
    whole("lives_per_hour", 1_000, 1, 1 << 30),  # new ones in which one name may call
    whole("wants_per_minute", 6_000, 1, 1 << 30),  # packets with which one peer may pull
    whole("tick_us", 100_000, 1, LIFETIME_MAX_US),
    whole("pull_us", 300_000, 1, LIFETIME_MAX_US),
    whole("jump_us", 1_500_000, 1, LIFETIME_MAX_US),
    whole("ack_us", 500_000, 1, LIFETIME_MAX_US),
    whole("alone_us", 5_000_000, 1, LIFETIME_MAX_US),
    whole("suspect_us", 10_000_000, 1, LIFETIME_MAX_US),
    anything("life", None, "16 hexadecimal digits"),
)
