"""Network access: the SSRF guard, HTTP, WebSockets and sockets. The only package that opens connections."""
