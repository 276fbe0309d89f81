"""Classical forecasts of single series: naive, exponential smoothing, Theta, intermittent demand."""
