"""Use cases of requests: submission, actions of users, and views of them."""
