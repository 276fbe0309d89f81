"""Roofline model: seconds of every kind of work in a step at the peaks of a device, and gradient reduction."""
