from pathlib import Path

import pytest

from loadgen.engines import emulator, openai, vllm
from loadgen.errors import UserError
from loadgen.server.arms import find_deploy, known_arms, read_flags, resolve

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def deploy(tmp_path):
    folder = tmp_path / "deploy" / "vllm"
    (folder / "arms").mkdir(parents=True)
    (folder / "arms" / "bf16.yaml").write_text("kv-cache-dtype: bfloat16\n")
    (folder / "arms" / "fp8.yaml").write_text("kv_cache_dtype: fp8\nkv-cache-dtype-skip-layers: [sliding_window, 3]\n")
    (folder / "common.yaml").write_text("enable-prefix-caching: false\nmodel: org/name\n")
    return tmp_path / "deploy"


def arms(names, deploy, **options):
    settings = {"engine": vllm.ENGINE, "shared": None, "overrides": {}, "model": None, "deploy": deploy, **options}
    return resolve(names, **settings)


def refused(*args, **options):
    with pytest.raises(UserError) as failure:
        arms(*args, **options)
    return list(failure.value.complaints)


def test_names_take_their_own_and_the_shared_flags(deploy):
    first, second = arms(["bf16", "fp8"], deploy)
    assert (first.name, first.engine, first.flags) == ("bf16", "vllm", {"kv-cache-dtype": "bfloat16"})
    assert first.shared_flags == {"enable-prefix-caching": "false", "model": "org/name"}
    assert second.flags == {"kv-cache-dtype": "fp8", "kv-cache-dtype-skip-layers": '["sliding_window", 3]'}
    assert second.shared_flags == first.shared_flags


def test_overrides_and_model_beat_the_shared_file(deploy):
    (arm,) = arms(["bf16"], deploy, overrides={"--enable_prefix_caching": "true", "max-num-seqs": "4"}, model="org/b")
    assert arm.shared_flags == {"enable-prefix-caching": "true", "model": "org/b", "max-num-seqs": "4"}


def test_an_override_that_an_arm_would_hide_is_refused(deploy):
    assert refused(["bf16"], deploy, overrides={"kv_cache_dtype": "fp8"}) == [
        "--set kv_cache_dtype=fp8: arm bf16 sets kv-cache-dtype itself (bfloat16)"
    ]


def test_a_file_and_a_running_server(deploy, tmp_path):
    (tmp_path / "my arm.yaml").write_text("kv-cache-dtype: fp8_e5m2\n")
    (tmp_path / "server.log").write_text("x")
    mine, running = arms(
        [str(tmp_path / "my arm.yaml"), "prod=http://h:8000/"], deploy, logs={"prod": str(tmp_path / "server.log")}
    )
    assert (mine.name, mine.flags) == ("my-arm", {"kv-cache-dtype": "fp8_e5m2"})
    assert (running.name, running.url, running.log) == ("prod", "http://h:8000", str(tmp_path / "server.log"))
    assert running.shared_flags == {}


def test_the_same_arm_twice_gets_a_name_of_its_own(deploy):
    assert [arm.name for arm in arms(["bf16", "bf16", "bf16"], deploy)] == ["bf16", "bf16-2", "bf16-3"]


def test_every_complaint_at_once(deploy, tmp_path):
    (tmp_path / "bad.yaml").write_text("a: [1\n")
    complaints = refused(
        ["bf61", "./nowhere.yaml", "=http://x", str(tmp_path / "bad.yaml")],
        deploy,
        logs={"ghost": "x.log"},
    )
    assert complaints[0] == (
        "--arm bf61: no such arm; did you mean bf16? Known: bf16, fp8; or a YAML file, or name=URL"
    )
    assert complaints[1] == "--arm ./nowhere.yaml: no such file"
    assert "expected name=URL" in complaints[2]
    assert complaints[3].startswith(f"{tmp_path}/bad.yaml:2: not YAML: ")
    assert complaints[4].startswith("--log ghost=x.log: no arm of that name")
    assert len(complaints) == 5


def test_logs_belong_to_running_servers_and_exist(deploy):
    assert refused(["bf16", "a=http://h"], deploy, logs={"bf16": "x", "a": "/no/such"}) == [
        "--log bf16=x: loadgen starts bf16 itself and keeps its log",
        "--log a=/no/such: no such file",
    ]


def test_a_model_must_be_given_and_a_folder_must_be_there(deploy):
    (deploy / "vllm" / "common.yaml").unlink()
    assert refused(["bf16"], deploy) == ["arm bf16: no model; give --model (a folder or a Hugging Face name)"]
    assert refused(["bf16", "fp8"], deploy, model="./not-there") == ["model ./not-there: no such folder"]


def test_an_engine_that_cannot_be_started(deploy):
    (complaint,) = refused(["bf16"], deploy, engine=openai.ENGINE)
    assert complaint == "--arm bf16: engine openai is nothing that loadgen can start; give name=URL"


def test_a_shared_file_that_is_not_there(deploy):
    assert refused(["bf16"], deploy, shared=Path("/no/such.yaml"), model="org/m") == [
        "/no/such.yaml: cannot be read: No such file or directory; should be a file of YAML"
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a: true\nb: false\nc: 3\nd: 0.5\ne: x", {"a": "true", "b": "false", "c": "3", "d": "0.5", "e": "x"}),
        ("a: [x, 1]\nb: {k: 2}", {"a": '["x", 1]', "b": '{"k": 2}'}),
        ("a: 'true'\nb: '[1, 2]'", {"a": '["true"]', "b": '["[1, 2]"]'}),
    ],
)
def test_notation_of_values(tmp_path, text, expected):
    path = tmp_path / "f.yaml"
    path.write_text(text)
    assert read_flags(path) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("- a\n", ": expected `flag: value` lines, found a list"),
        ("a:\n", ": a: no value; give one or remove the line"),
        ("a: [\n", ":2: not YAML: while parsing a flow node"),
        ("a: !!float ''\n", ":1: not YAML: '' is no float"),
        ("a: !!timestamp x\n", ":1: not YAML: could not determine a constructor for the tag"),
        ("[" * 500, ":1: not YAML: nested too deeply (column 51)"),
        ("- " * 2000, ": nested too deeply"),
        ("a: !!map b\n", ":1: not YAML: expected a mapping node"),
        ("? {}\n: 1\n", ":1: not YAML: while constructing a mapping found unhashable key"),
    ],
)
def test_files_that_are_no_flags(tmp_path, text, complaint):
    path = tmp_path / "f.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as failure:
        read_flags(path)
    assert str(failure.value).startswith(f"{path}{complaint}")


def test_the_deploy_folder_here_then_beside_the_package(deploy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_deploy(vllm.ENGINE) == Path("deploy")
    monkeypatch.chdir("/")
    assert find_deploy(vllm.ENGINE).resolve() == REPOSITORY / "deploy"
    with pytest.raises(UserError, match="no arms for OpenAI-compatible server"):
        find_deploy(openai.ENGINE)


def test_the_arms_that_come_along_differ_in_the_cache_alone():
    deploy = REPOSITORY / "deploy"
    names = known_arms(vllm.ENGINE, deploy)
    assert names == [
        "bf16",
        "fp8",
        "fp8-skip-sliding-window",
        "fp8_e5m2",
        "int4_per_token_head",
        "int8_per_token_head",
        "nvfp4",
        "turboquant_k8v4",
    ]
    for arm in arms(names, deploy, model="org/m"):
        assert {key.removesuffix("-skip-layers") for key in arm.flags} == {"kv-cache-dtype"}
    assert arms(["bf16"], deploy, model="org/m")[0].flags == {"kv-cache-dtype": "bfloat16"}


def test_flags_for_servers_that_nobody_starts_are_refused():
    with pytest.raises(UserError) as refused:
        resolve(["a=http://h:1"], engine=vllm.ENGINE, shared=Path("x"), overrides={"max-num-seqs": "8"}, model=None)
    assert [line.partition(":")[0] for line in refused.value.complaints] == ["--shared", "--set"]


def test_running_servers_need_no_deploy_folder():
    (arm,) = arms(["a=http://h:1/v1"], None, engine=openai.ENGINE)
    assert (arm.name, arm.engine, arm.url) == ("a", "openai", "http://h:1")
    assert arms(["bf16"], None, model="org/m")[0].flags == {"kv-cache-dtype": "bfloat16"}


def test_an_emulated_arm_needs_no_model_its_profile_has_one():
    found = arms(["bf16", "fp8"], REPOSITORY / "deploy", engine=emulator.ENGINE)
    assert [arm.flags["kv-cache-dtype"] for arm in found] == ["bfloat16", "fp8"]
    assert all("profile" in arm.shared_flags for arm in found)
