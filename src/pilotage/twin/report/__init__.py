"""Reports of runs: tables, differences between policies, pictures, one page, one document."""
