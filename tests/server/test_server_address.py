import pytest

from loadgen.engines.table import ENGINES
from loadgen.errors import UserError
from loadgen.server.address import server_root, without_userinfo
from loadgen.server.arms import resolve


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000"),
        ("https://[::1]:8000/prefix/v1", "https://[::1]:8000/prefix"),
    ],
)
def test_a_root_has_neither_version_nor_slash(url, root):
    assert server_root(url) == root


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8000",
        "ftp://h",
        "http://",
        "http://[::1",
        "http://h:99999",
        "http://h:abc",
        "http://h:0",
        "http://h?x=1",
    ],
)
def test_what_is_no_url_is_the_users_mistake(url):
    with pytest.raises(UserError, match="not a URL of a server; write it like"):
        server_root(url)


def test_an_arm_of_no_url_is_told_with_its_name():
    with pytest.raises(UserError) as refused:
        resolve(["a=http://h:abc", "b=http://[::1"], engine=ENGINES["vllm"], shared=None, overrides={}, model=None)
    assert [line.partition(":")[0] for line in refused.value.complaints] == ["--arm a=http", "--arm b=http"]


def test_credentials_in_a_url_are_refused_and_never_shown():
    for url in ("http://joe:hunter2@h:1", "http://joe:hun/ter2@h:1", "http://joe:hunter2@[::1"):
        with pytest.raises(UserError) as refused:
            server_root(url)
        assert "joe" not in str(refused.value)
        for arm in (url, f"a={url}"):
            with pytest.raises(UserError) as refused:
                resolve([arm], engine=ENGINES["vllm"], shared=None, overrides={}, model=None)
            assert "joe" not in str(refused.value)
    assert (
        without_userinfo("run --url http://joe:x@h/v1 --arm a=https://k@g") == "run --url http://h/v1 --arm a=https://g"
    )
