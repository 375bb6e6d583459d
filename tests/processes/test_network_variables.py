"""Certificates, proxies, caches and registries reach started programs; nothing that looks like a secret does."""

import pytest

from toolpost.processes.launch import child_environment
from toolpost.processes.network_variables import NETWORK_VARIABLES, network_variables
from toolpost.schema.secrets import is_secret_variable


def test_no_name_on_the_list_looks_like_that_of_a_secret() -> None:
    assert [name for name in NETWORK_VARIABLES if is_secret_variable(name)] == []
    assert len(set(NETWORK_VARIABLES)) == len(NETWORK_VARIABLES)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SSL_CERT_FILE", "/nix/store/0c5p1fd1yc4cbzd1bv5ia3r1w0vqc9ss-nss-cacert/etc/ssl/certs/ca-bundle.crt"),
        ("NODE_EXTRA_CA_CERTS", "/home/ann@corp/ca.pem"),
        ("HTTPS_PROXY", "http://proxy.corp.example:3128"),
        ("no_proxy", "localhost,127.0.0.1,.corp.example"),
        ("UV_DEFAULT_INDEX", "https://pypi.corp.example/api/pypi/pypi-remote-virtual/simple"),
        ("PIP_INDEX_URL", "https://pypi.corp.example/simple"),
        ("npm_config_registry", "https://npm.corp.example/npm-virtual/"),
        ("XDG_CACHE_HOME", "/var/cache/ann"),
    ],
)
def test_a_variable_for_the_network_is_passed_on(name: str, value: str) -> None:
    assert network_variables({name: value}) == ({name: value}, ())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTPS_PROXY", "http://ann:secret@proxy.example:3128"),
        ("https_proxy", "ann:secret@proxy.example:3128"),
        ("PIP_INDEX_URL", "https://token@pypi.example/simple"),
        ("UV_EXTRA_INDEX_URL", "https://one.example/simple https://u:p@two.example/simple"),
        ("UV_INDEX", "private=https://u:p@two.example/simple"),
        ("UV_INDEX_URL", "https://pypi.example/simple?token=abc"),
        ("npm_config_registry", "https://npm.example/0123456789abcdef0123456789abcdef01234567/"),
        ("npm_config_registry", "https://npm.example/npm_4f9a8Bc7De6Fg5Hi4Jk3Lm2No1Pq0Rs9Tu8V"),
    ],
)
def test_a_value_with_a_login_or_a_token_is_withheld(name: str, value: str) -> None:
    assert network_variables({name: value}) == ({}, (name,))


def test_what_env_names_is_passed_on_and_replaces_both_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://ann:secret@proxy.example")
    monkeypatch.setenv("https_proxy", "http://other.example")

    assert child_environment({"HTTPS_PROXY": "http://ann:secret@proxy.example"}).items() >= {
        ("HTTPS_PROXY", "http://ann:secret@proxy.example")
    }
    assert "https_proxy" not in child_environment({"HTTPS_PROXY": ""})
    assert "HTTPS_PROXY" not in child_environment({})
    assert child_environment({})["https_proxy"] == "http://other.example"
