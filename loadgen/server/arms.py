"""What the user called an arm -> an ArmSpec: a name, a file of flags, or the URL of a server that already runs."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import loadgen
from loadgen import document
from loadgen.engines.engine import Engine
from loadgen.errors import UserError
from loadgen.records import ArmSpec
from loadgen.server.address import server_root, without_userinfo

NAME = re.compile(r"[A-Za-z0-9_.-]+")
_SHARED_FILE = "common.yaml"


def find_deploy(engine: Engine) -> Path:
    """The folder `deploy` that holds this engine's arms: here, beside the package, or inside the installed package.

    Raises UserError where there is none.
    """
    package = Path(loadgen.__file__).resolve().parent
    candidates = (Path("deploy"), package.parent / "deploy", package / "_data" / "deploy")
    for folder in candidates:
        if (folder / engine.name / "arms").is_dir():
            return folder
    looked = ", ".join(str(folder / engine.name / "arms") for folder in candidates)
    raise UserError(f"no arms for {engine.label}: looked for {looked}; start in loadgen's folder or give a YAML file")


def known_arms(engine: Engine, deploy: Path) -> list[str]:
    """The names of the arms that `deploy` holds for an engine."""
    return sorted(path.stem for path in (deploy / engine.name / "arms").glob("*.yaml"))


def resolve(
    names: Sequence[str],
    *,
    engine: Engine,
    shared: Path | None,
    overrides: Mapping[str, str],
    model: str | None,
    deploy: Path | None = None,
    logs: Mapping[str, str] | None = None,
) -> list[ArmSpec]:
    """The arms in the order given; the first is the base.

    `names`: each a name in `deploy`/ENGINE/arms (None: see `find_deploy`), a YAML file, or "name=URL". `shared`: flags
    of every arm that is started here; None = `deploy`/ENGINE/common.yaml. `overrides` (flag -> value) and `model` go to
    every such arm and beat `shared`; setting a flag that an arm sets itself is refused. Where every arm is "name=URL",
    `model` is what to ask them for. `logs`: arm name -> log file of a server that already runs. An arm given twice gets
    a name of its own: bf16, then bf16-2. Raises UserError with every complaint.
    """
    complaints: list[str] = []
    starts = engine.module is not None and any(map(_is_started, names))
    folder = deploy or (find_deploy(engine) if starts else Path())
    common = _shared_flags(engine, shared, folder, complaints) if starts else {}
    common |= {_flag(key): value for key, value in overrides.items()}
    if model is not None:
        common["model"] = model
    if not starts:
        given = {"--shared": shared is not None, "--set": bool(overrides)}
        complaints += [
            f"{option}: no arm here is started by loadgen; leave it out" for option in given if given[option]
        ]
        common = {} if model is None else {"model": model}
    theirs = {} if starts else common
    found = [_arm(name, engine, folder, common if _is_started(name) else theirs, complaints) for name in names]
    arms = _logged(_distinct([arm for arm in found if arm is not None]), logs or {}, complaints)
    for arm in arms:
        complaints += _conflicts(arm, overrides)
    if engine.needs_model:
        complaints += _model_complaints(arms)
    if complaints:
        raise UserError(*dict.fromkeys(complaints))
    return arms


def read_flags(path: Path) -> dict[str, str]:
    """An engine's native YAML file, flat: flag -> value in the notation of `ArmSpec.flags`.

    In that notation true and false are switches, a JSON list is several values, anything else is one value.
    Raises UserError.
    """
    content = document.load(path, document.NATIVE).data
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected `flag: value` lines, found a {type(content).__name__}")
    empty = [key for key, value in content.items() if value is None]
    if empty:
        raise UserError(*(f"{path}: {key}: no value; give one or remove the line" for key in empty))
    return {_flag(str(key)): _notation(value) for key, value in content.items()}


def _flag(key: str) -> str:
    return key.strip().lstrip("-").replace("_", "-")


def _notation(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict)):
        return json.dumps(value)
    text = str(value)
    looks_special = text in ("true", "false") or text.startswith("[")
    return json.dumps([text]) if looks_special else text


def _is_started(name: str) -> bool:
    return "://" not in name


def _shared_flags(engine: Engine, shared: Path | None, deploy: Path, complaints: list[str]) -> dict[str, str]:
    path = shared if shared is not None else deploy / engine.name / _SHARED_FILE
    if shared is None and not path.is_file():
        return {}
    try:
        return read_flags(path)
    except UserError as error:
        complaints += error.complaints
        return {}


def _arm(text: str, engine: Engine, deploy: Path, common: dict[str, str], complaints: list[str]) -> ArmSpec | None:
    if not _is_started(text):
        name, equals, url = text.partition("=")
        if not equals or not NAME.fullmatch(name):
            complaints.append(f"--arm {without_userinfo(text)}: expected name=URL, such as fp8=http://127.0.0.1:8000")
            return None
        try:
            return ArmSpec(name=name, engine=engine.name, shared_flags=common, url=server_root(url))
        except UserError as error:
            complaints += (f"--arm {name}={complaint}" for complaint in error.complaints)
            return None
    if engine.module is None:
        complaints.append(f"--arm {text}: engine {engine.name} is nothing that loadgen can start; give name=URL")
        return None
    path = _arm_file(text, engine, deploy, complaints)
    if path is None:
        return None
    try:
        flags = read_flags(path)
    except UserError as error:
        complaints += error.complaints
        return None
    return ArmSpec(
        name=re.sub(r"[^A-Za-z0-9_.-]+", "-", path.stem), engine=engine.name, flags=flags, shared_flags=common
    )


def _arm_file(text: str, engine: Engine, deploy: Path, complaints: list[str]) -> Path | None:
    if text.endswith((".yaml", ".yml")) or "/" in text:
        if Path(text).is_file():
            return Path(text)
        complaints.append(f"--arm {text}: no such file")
        return None
    known = known_arms(engine, deploy)
    if text in known:
        return deploy / engine.name / "arms" / f"{text}.yaml"
    near = get_close_matches(text, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? Known" if near else "known"
    complaints.append(f"--arm {text}: no such arm; {hint}: {', '.join(known)}; or a YAML file, or name=URL")
    return None


def _distinct(arms: Iterable[ArmSpec]) -> list[ArmSpec]:
    taken: set[str] = set()
    result = []
    for arm in arms:
        name, number = arm.name, 1
        while name in taken:
            number += 1
            name = f"{arm.name}-{number}"
        taken.add(name)
        result.append(_renamed(arm, name))
    return result


def _renamed(arm: ArmSpec, name: str, log: str | None = None) -> ArmSpec:
    return ArmSpec(
        name=name, engine=arm.engine, flags=arm.flags, shared_flags=arm.shared_flags, url=arm.url, log=log or arm.log
    )


def _logged(arms: list[ArmSpec], logs: Mapping[str, str], complaints: list[str]) -> list[ArmSpec]:
    by_name = {arm.name: arm for arm in arms}
    for name, file in logs.items():
        if name not in by_name:
            complaints.append(f"--log {name}={file}: no arm of that name; arms: {', '.join(by_name) or 'none'}")
        elif by_name[name].url is None:
            complaints.append(f"--log {name}={file}: loadgen starts {name} itself and keeps its log")
        elif not Path(file).is_file():
            complaints.append(f"--log {name}={file}: no such file")
    return [_renamed(arm, arm.name, logs.get(arm.name)) for arm in arms]


def _conflicts(arm: ArmSpec, overrides: Mapping[str, str]) -> list[str]:
    own = [key for key in overrides if _flag(key) in arm.flags]
    return [
        f"--set {key}={overrides[key]}: arm {arm.name} sets {_flag(key)} itself ({arm.flags[_flag(key)]})"
        for key in own
    ]


def _model_complaints(arms: Iterable[ArmSpec]) -> list[str]:
    complaints = []
    for arm in arms:
        if arm.url is not None:
            continue
        model = arm.flags.get("model", arm.shared_flags.get("model"))
        if model is None:
            complaints.append(f"arm {arm.name}: no model; give --model (a folder or a Hugging Face name)")
        elif looks_like_folder(model) and not Path(os.path.expanduser(model)).is_dir():  # noqa: PTH111 (it never raises)
            complaints.append(f"model {model}: no such folder")
    return complaints


def looks_like_folder(model: str) -> bool:
    """True for what can only be a path ("./m", "/m", ".cache/tiny", "a/b/c"), not a name on a model hub ("org/m")."""
    return model.startswith((".", "/", "~")) or model.count("/") > 1
