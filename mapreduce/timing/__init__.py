"""Where the time of a run went: traces, their clocks, causes, and what a report shows of them."""
