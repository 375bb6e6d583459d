"""Certificates that only a test trusts."""

import datetime as dt
import ssl
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates for names and addresses; `file` holds its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test's authority")])
        self.file = folder / "authority.pem"
        self.file.write_bytes(_pem(self._sign(self._name, self._key, names=(), is_authority=True)))

    def server(self, *names: str) -> ssl.SSLContext:
        """The context of a server with a certificate for these; it notes the name that a client asks for."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        file = self._folder / f"{names[0].replace(':', '_')}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file.write_bytes(private + _pem(self._sign(subject, key, names=names, is_authority=False)))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(file)
        context.sni_callback = lambda tls, name, _: setattr(tls, "named", name)
        return context

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, names: tuple[str, ...], is_authority: bool
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(list(map(_general_name, names))), critical=False
            )
        return builder.sign(self._key, hashes.SHA256())


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
