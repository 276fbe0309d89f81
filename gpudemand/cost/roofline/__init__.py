"""Roofline model of a training step: seconds of each kind of work at the peaks of a device."""
