"""The one writer: transactions in groups, COMMIT, replies."""
