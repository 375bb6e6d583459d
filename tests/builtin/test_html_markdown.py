"""Pages as Markdown: what a person would read, in time that grows with the page alone."""

import time

import msgspec
import pytest

from toolpost.builtin.html_markdown import page_markdown
from toolpost.builtin.html_parser_program import parse
from toolpost.builtin.html_tree import Element


def tree(source: str) -> Element:
    return msgspec.convert(parse(source), type=Element)


def markdown(source: str) -> str:
    return page_markdown(tree(source), base_url="https://a.example/docs/page").markdown


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<h1>A <em>b</em></h1><p>c</p>", "# A *b*\n\nc"),
        ("<p>one<p>two", "one\n\ntwo"),
        ("a<br>b", "a\nb"),
        ("<b> bold </b>and<code>x`y</code>", "**bold** and``x`y``"),
        ('<a href="../x?a=1&amp;b=2">go</a>', "[go](https://a.example/x?a=1&b=2)"),
        ('<a href="/a (b)">go</a>', "[go](https://a.example/a%20%28b%29)"),
        ('<a href="javascript:alert(1)">go</a><a href="#top">up</a>', "goup"),
        ('<img src="/i.png" alt="A cat"><img src="/spacer.gif">', "![A cat](https://a.example/i.png)"),
        ("<ul><li>one<li>two<ul><li>deep</ul></ul>", "- one\n- two\n  - deep"),
        ("<ol start=3><li>c<li>d</ol>", "3. c\n4. d"),
        ("<blockquote>a<p>b</blockquote>", "> a\n>\n> b"),
        ('<pre><code class="language-py">x &lt; 1\n  y</code></pre>', "```py\nx < 1\n  y\n```"),
        ("<pre>a```b</pre>", "````\na```b\n````"),
        ("<dl><dt>Term<dd>Meaning</dl>", "**Term**\n\nMeaning"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("3 < 4 & 5 > 2 &copy;", "3 < 4 & 5 > 2 ©"),
        ("<div><span>in</span>line</div><div>next</div>", "inline\n\nnext"),
    ],
)
def test_elements_become_markdown(source: str, expected: str) -> None:
    assert markdown(source) == expected


@pytest.mark.parametrize(
    "hidden",
    [
        "<script>if (a < b) { say('<p>SECRET</p>') }</script>",
        "<style>p::after { content: 'SECRET' }</style>",
        "<!-- SECRET -->",
        "<div hidden>SECRET</div>",
        "<p aria-hidden=true>SECRET</p>",
        '<p style="color: red; DISPLAY : none">SECRET</p>',
        '<span style="font-size:0">SECRET</span>',
        '<span style="opacity:0">SECRET</span>',
        '<span style="position:absolute;left:-9999px">SECRET</span>',
        '<span class="visually-hidden">SECRET</span>',
        "<noscript>SECRET</noscript>",
        "<template><p>SECRET</p></template>",
        "<svg><text>SECRET</text></svg>",
        "<button>SECRET</button>",
        "<nav>SECRET</nav><footer>SECRET</footer>",
        "<iframe>SECRET</iframe>",
        "<script>SECRET",
        "<a href='x' SECRET",
    ],
)
def test_invisible_text_is_skipped(hidden: str) -> None:
    assert markdown(f"<p>before</p>{hidden}").replace("before", "") == ""


def test_a_heading_inside_the_content_stays_and_one_around_it_goes() -> None:
    source = "<header>Logo</header><main><article><header><h1>Title</h1></header>Text</article></main>"

    assert markdown(source) == "# Title\n\nText"


def test_a_page_of_nothing_but_navigation_is_reported_whole() -> None:
    assert markdown("<nav><a href=/a>A</a></nav>") == "[A](https://a.example/a)"


def test_a_table_becomes_a_table() -> None:
    source = "<table><caption>Prices</caption><tr><th>What<th>How much<tr><td>Tea|pot<td>3<br>euros<tr><td>Cup</table>"

    assert markdown(source) == "Prices\n\n| What | How much |\n| --- | --- |\n| Tea\\|pot | 3 euros |\n| Cup |  |"


def test_a_table_that_lays_out_the_page_becomes_its_blocks() -> None:
    assert markdown("<table><tr><td><h2>Left</h2>a<td><p>b</table>") == "## Left\n\na\n\nb"


def test_the_title_and_the_base_are_read() -> None:
    source = "<title>A &amp;\n B</title><base href=https://b.example/d/><a href=x>x</a>"
    page = page_markdown(tree(source), base_url="https://a.example/")

    assert page == ("A & B", "[x](https://b.example/d/x)")


def taken_s(page: str) -> float:
    began = time.process_time()
    markdown(page)
    return time.process_time() - began


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "<a ",
        "<!--",
        '<a b="',
        "<a b='\"",
        "<div>",
        "<a =",
        "&",
        "</b>",
        "<script>",
        "<li>",
        "<b><p>",
        "&#x",
        "<a/",
    ],
)
def test_no_page_takes_more_time_than_its_length(piece: str) -> None:
    short, long = (taken_s(piece * (size // len(piece))) for size in (15_000, 90_000))

    assert long < 18 * short + 0.5  # six times as long: the square of it would be thirty-six times
