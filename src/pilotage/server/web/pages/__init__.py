"""The pages, a module for each. Each module has a `PageRouter` named `pages`, and is found by itself."""
