"""Where input and output sandboxes lie."""
