"""`pilotage report`: the work of a submission, a request or a month, as text or as one HTML file."""
