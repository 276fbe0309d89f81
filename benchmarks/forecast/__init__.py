"""How well demand is forecast, beside naive methods and the field's standard ones, on public series."""
