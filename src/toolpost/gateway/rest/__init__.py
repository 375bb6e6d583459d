"""The REST interface of the gateway: operations, the document that describes them, and what they do."""
