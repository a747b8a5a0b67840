"""Who is next, over time: priorities of task queues, the use that was made, and the corrections drawn from it."""
