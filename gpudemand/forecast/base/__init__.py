"""What every forecaster builds on: the estimator contract, the panel of series, intervals and rolling windows."""
