"""The benchmark suite: `./bench NAME [options]`. Apart from the tests: nothing here passes or fails."""
