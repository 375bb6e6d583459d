"""The REST interface of the gateway: operations and their OpenAPI document."""
