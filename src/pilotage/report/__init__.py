"""Reports of work: figures from the answers of API calls, as tables, a timeline and one HTML file."""
