"""Bottom-up demand forecasts: running jobs plus arrivals times run times."""
