"""For the tests of programs that use headrace: their own app on a memory store, under a clock they move by hand."""
