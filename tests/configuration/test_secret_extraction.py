"""Secrets that were written out are told apart from other text and put behind variables."""

from pathlib import Path

import pytest

from toolpost.configuration.secret_extraction import SecretExtractor, references, variable_name

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ.c2lnbmF0dXJl"


@pytest.fixture
def concealer() -> SecretExtractor:
    return SecretExtractor({})


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("GITHUB_TOKEN", "abcdef", "${SRV_GITHUB_TOKEN}"),
        ("OPENAI_KEY", "whatever", "${SRV_OPENAI_KEY}"),
        ("LOG_LEVEL", "debug", "debug"),
        ("TOKEN_COUNT", "4096", "4096"),
        ("USE_AUTH", "true", "true"),
        ("API_KEY", "", ""),
        ("GITHUB_TOKEN", "${MY_OWN}", "${MY_OWN}"),
        ("GITHUB_TOKEN", "$${NOT_ONE}", "${SRV_GITHUB_TOKEN}"),
        (
            "HEADERS",
            '{"Authorization": "Bearer ntn_0123456789abcdef0"}',
            '{"Authorization": "Bearer ${SRV_AUTHORIZATION}"}',
        ),
        ("DATABASE_URL", "postgres://ann:pw@db/x", "postgres://ann:${SRV_DATABASE_URL_PASSWORD}@db/x"),
        ("DATABASE_URL", "postgres://ann:${PW}@db/x", "postgres://ann:${PW}@db/x"),
        ("NOTE", f"see {JWT}", "see ${SRV_NOTE}"),
    ],
)
def test_a_variable_is_judged_by_its_name_and_by_what_well_known_keys_look_like(
    concealer: SecretExtractor, name: str, value: str, written: str
) -> None:
    assert concealer.env("srv", name, value) == written


def test_a_path_to_a_file_that_holds_the_secret_is_none_itself(concealer: SecretExtractor, tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    file.touch()

    assert concealer.env("srv", "GOOGLE_CREDENTIALS", str(file)) == str(file)
    assert concealer.env("srv", "GOOGLE_CREDENTIALS", f"{file}x") == "${SRV_GOOGLE_CREDENTIALS}"


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("Authorization", "Bearer abcdef", "Bearer ${SRV_AUTHORIZATION}"),
        ("Authorization", "Basic YW5uOnB3", "Basic ${SRV_AUTHORIZATION}"),
        ("Authorization", "Bearer ${T}", "Bearer ${T}"),
        ("Authorization", "Bearer ", "Bearer "),
        ("Cookie", "session=1234", "${SRV_COOKIE}"),
        ("X-API-Key", "abcdef", "${SRV_X_API_KEY}"),
        ("Ocp-Apim-Subscription-Key", "abcdef", "${SRV_OCP_APIM_SUBSCRIPTION_KEY}"),
        ("Accept", "application/json", "application/json"),
    ],
)
def test_a_header_keeps_its_scheme(concealer: SecretExtractor, name: str, value: str, written: str) -> None:
    assert concealer.header("srv", name, value) == written


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("--api-key=abcdef", "--api-key=${SRV_API_KEY}"),
        ("GITHUB_TOKEN=abcdef", "GITHUB_TOKEN=${SRV_GITHUB_TOKEN}"),
        ("Authorization: Bearer abcdef", "Authorization: Bearer ${SRV_AUTHORIZATION}"),
        ("Authorization:${AUTH}", "Authorization:${AUTH}"),
        ("postgresql://ann:pw@db/x", "postgresql://ann:${SRV_PASSWORD}@db/x"),
        ("--url=https://a.example/?api_key=abcdef&x=1", "--url=https://a.example/?api_key=${SRV_API_KEY}&x=1"),
        ("sk-proj-0123456789abcdef", "${SRV_KEY}"),
        ("@scope/server@1.2.3", "@scope/server@1.2.3"),
        ("--tools=all", "--tools=all"),
        ("https://a.example/path?page=2", "https://a.example/path?page=2"),
    ],
)
def test_a_word_of_a_command_is_looked_into(concealer: SecretExtractor, word: str, written: str) -> None:
    assert concealer.words("srv", ["run", word]) == ["run", written]


def test_what_follows_a_secret_option_is_one(concealer: SecretExtractor) -> None:
    words = ["run", "--token", "abcdef", "--verbose", "abcdef", "--password", "--quiet"]

    assert concealer.words("srv", words) == [*words[:2], "${SRV_TOKEN}", *words[3:]]


def test_a_url_loses_its_keys_and_a_login_is_taken_apart(concealer: SecretExtractor) -> None:
    assert concealer.url("srv", "https://a.example/mcp?exaApiKey=abc-12&q=1") == (
        "https://a.example/mcp?exaApiKey=${SRV_EXA_API_KEY}&q=1"
    )
    assert concealer.login("srv", "https://ann:p%40ss@a.example/mcp") == (
        "https://a.example/mcp",
        {"username": "ann", "password": "${SRV_PASSWORD}"},
    )
    assert concealer.login("srv", "https://a.example/@mcp") == ("https://a.example/@mcp", {})
    assert [variable.value for variable in concealer.variables] == ["abc-12", "p@ss"]


@pytest.mark.parametrize("password", ["pw", "true", "1"])
def test_a_password_in_a_url_is_one_however_short_or_plain(concealer: SecretExtractor, password: str) -> None:
    address, login = concealer.login("srv", f"https://ann:{password}@a.example/mcp")

    assert (address, login["password"]) == ("https://a.example/mcp", "${SRV_PASSWORD}")
    assert [variable.value for variable in concealer.variables] == [password]


def test_a_reference_in_the_place_of_a_password_stays(concealer: SecretExtractor) -> None:
    _, login = concealer.login("srv", "https://ann:${WIKI_PASSWORD}@a.example/mcp")

    assert (login["password"], concealer.variables) == ("${WIKI_PASSWORD}", [])


def test_the_same_secret_gets_the_same_variable_and_another_one_another() -> None:
    concealer = SecretExtractor({"API_KEY": "somebody else's", "B_API_KEY": "second"})

    written = [
        concealer.env(source, "API_KEY", value, own_name=True)
        for source, value in [("a", "first"), ("b", "second"), ("b", "first"), ("a", "third")]
    ]

    assert written == ["${A_API_KEY}", "${B_API_KEY}", "${A_API_KEY}", "${A_API_KEY_2}"]


def test_a_variable_may_be_called_like_the_one_that_it_fills(concealer: SecretExtractor) -> None:
    assert concealer.env("srv", "GITHUB_TOKEN", "abcdef", own_name=True) == "${GITHUB_TOKEN}"
    assert "abcdef" not in repr(concealer.variables)
    assert concealer.variables[0].stands_for == "env GITHUB_TOKEN of 'srv'"


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("my-server", "apiKey"), "MY_SERVER_API_KEY"),
        (("github", "GITHUB_TOKEN"), "GITHUB_TOKEN"),
        (("7zip", "key"), "V_7ZIP_KEY"),
        (("",), "V_"),
    ],
)
def test_a_name_for_a_variable_is_one(parts: tuple[str, ...], name: str) -> None:
    assert variable_name(*parts) == name


def test_references_are_found_and_what_only_looks_like_one_is_not() -> None:
    assert references("a ${B} $${C} ${d_1} ${1x} ${E:-f} $G") == ["B", "d_1"]


@pytest.mark.parametrize(
    "word",
    [
        "--env=API_TOKEN=hunter2secret",
        "--header=Authorization: Bearer hunter2secret",
        '--config={"exaApiKey":"hunter2secret"}',
        '{"exaApiKey": "hunter2secret"}',
        "export API_KEY=hunter2secret; node x.js",
        "Server=h;User Id=sa;Password=hunter2secret;",
    ],
)
def test_a_secret_in_the_middle_of_a_word_is_found(concealer: SecretExtractor, word: str) -> None:
    [written] = concealer.words("srv", [word])
    assert "hunter2secret" not in written
    assert [variable.value for variable in concealer.variables] == ["hunter2secret"]
