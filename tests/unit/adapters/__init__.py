"""The pure parts of the adapters."""
