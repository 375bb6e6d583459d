"""The syntax of HTTP."""

TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - RFC 9110 section 5.6.2: names of fields, methods and parameters
