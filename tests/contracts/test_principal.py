"""Who a call is for, as people write it."""

import pytest

from toolpost.contracts.principal import Principal


@pytest.mark.parametrize(
    ("text", "tenant", "user"),
    [("acme:ann", "acme", "ann"), ("ann", "local", "ann"), ("acme:a:b", "acme", "a:b")],
)
def test_a_person_is_written_as_tenant_and_user(text: str, tenant: str, user: str) -> None:
    assert Principal.parse(text) == (tenant, user)


def test_a_person_reads_back_as_written() -> None:
    assert str(Principal.parse("acme:ann")) == "acme:ann"


@pytest.mark.parametrize("text", ["", ":", "acme:", ":ann"])
def test_half_a_person_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not of the form 'tenant:user'"):
        Principal.parse(text)
