"""Chat models: clients of providers, how a name becomes one, and how a model is asked."""
