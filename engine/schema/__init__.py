"""The stored format, as a BARE schema."""
