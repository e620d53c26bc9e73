"""`python -m opgraft` is `opgraft`."""

from opgraft.cli import main

raise SystemExit(main())
