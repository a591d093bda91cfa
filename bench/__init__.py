"""The benchmark: headrace beside its peers and beside what SQLite itself can do, in one run on one machine."""
