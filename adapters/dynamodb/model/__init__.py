"""The data model of the table: what its items hold, which of them a commit writes, and what they mean. Pure."""
