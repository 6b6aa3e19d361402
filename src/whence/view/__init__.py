"""The window: a run or a log as one page that needs nothing else (docs/view.md)."""
