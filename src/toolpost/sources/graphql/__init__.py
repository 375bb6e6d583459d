"""GraphQL APIs as tools: every query field reads, every mutation writes."""
