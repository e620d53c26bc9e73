"""What tests and benchmarks of opgraft-egraph share."""
