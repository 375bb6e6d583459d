"""Who searches, reads pages and retrieves: providers that take each other's place by configuration."""
