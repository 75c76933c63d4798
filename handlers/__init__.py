"""Lambda entry points: they translate events and decide nothing."""
