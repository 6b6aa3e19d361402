"""The window: a run or a log as one page that needs nothing else (docs/view.md)."""

EVENTS_MAX = 5_000_000  # more than that a browser does not hold with ease
PAD = 40  # events beside a finding, in each lane
AROUND_EVENTS = 50_000  # of one finding
