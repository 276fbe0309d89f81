"""Models of step time and peak memory behind `CostModel`, and the largest batch that fits."""
