"""Chat models: clients of providers, names of models, and requests to them."""
