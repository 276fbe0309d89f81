"""Stages of a study: usage, waits, segments, forecast, parts, plan, orders, scenarios, and the chain of them."""
