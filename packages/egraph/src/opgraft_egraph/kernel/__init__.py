"""The tiers `index` and `scalar`: what of a kernel is explored, at which prices, how far.

`tiers` says where and drives it; `region` cuts that part out and puts it back; `pricelist` is what
operations cost, as data; `choosing` takes the cheapest terms.
"""

from __future__ import annotations
