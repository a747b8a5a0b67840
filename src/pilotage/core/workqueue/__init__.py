"""The work queue's rules: elements, which agent gets them, and in which order."""
