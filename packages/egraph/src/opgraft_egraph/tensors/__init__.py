"""The tensor tier: what array graphs compute, with which products, is a matter of cost.

An array graph is read as terms in which axes have names instead of places (`forms`, `reading`);
rules say which terms are equal (`views`, `products`, `sums`, `exponents`, `joins`); prices say what
each costs (`prices`); `tier` searches, and `writing` makes the graph of what was found.
"""
