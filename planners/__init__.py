"""Tables in, decisions out: observations, frontier, cost model, design rules, recommendation."""
