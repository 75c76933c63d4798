"""AWS and the rest of the outside, one port each."""
