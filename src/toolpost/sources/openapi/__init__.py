"""REST APIs as a source of tools, from their OpenAPI or Swagger document."""
