"""GraphQL APIs as tools: one read-only tool per query field, one writing tool per mutation field."""
