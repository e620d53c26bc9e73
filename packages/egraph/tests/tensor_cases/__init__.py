"""Terms of arrays for tests: their values, random ones, and rules that do not hold."""
