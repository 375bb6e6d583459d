"""Policy and redaction: which calls need an approval, which files tools may use, which secrets are masked."""
