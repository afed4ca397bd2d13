"""Load function_app.py as the Python worker does: index its functions, and refuse those that cannot run."""

from __future__ import annotations

import importlib.util
import inspect
import json
import logging
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import azure.functions as func
from azure.functions.cosmosdb import CosmosDBTriggerConverter
from azure.functions.timer import TimerRequestConverter

from outbox_relay.emulators.functions.errors import HostError
from outbox_relay.emulators.functions.retries import RetryPolicy

SCRIPT = "function_app.py"
COSMOS_TRIGGER = "cosmosDBTrigger"
TIMER_TRIGGER = "timerTrigger"
TRIGGERS = (COSMOS_TRIGGER, TIMER_TRIGGER)
_MODULE = "function_app"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Function:
    """A function with a trigger that is served: the callable, its parameters, and what its decorators declare."""

    name: str
    call: Callable[..., Any]
    is_async: bool
    directory: str
    parameter: str
    takes_text: bool
    takes_context: bool
    trigger: Mapping[str, Any]
    retry_policy: RetryPolicy | None


@contextmanager
def importable(app_directory: Path) -> Iterator[None]:
    """Let the app import the modules of its directory while the block lasts; some imports come late."""
    directory = str(app_directory)
    sys.path.insert(0, directory)
    try:
        yield
    finally:
        sys.path.remove(directory)


def load_functions(app_directory: Path) -> list[Function]:
    """Execute the directory's function_app.py afresh and index it.

    Functions with other triggers are named in a warning and skipped. Raises HostError if the app cannot be loaded,
    has no function that this host can run, or has one that the worker would refuse.
    """
    app = _registered_app(_execute(app_directory))
    try:
        with without_the_librarys_advice():
            indexed = app.get_functions()
    except ValueError as error:
        raise HostError(f"{SCRIPT} cannot be indexed: {error}") from error
    functions = []
    for declared in indexed:
        bindings = [json.loads(binding) for binding in declared.get_raw_bindings()]
        trigger = declared.get_trigger().get_dict_repr()
        name = declared.get_function_name()
        if not is_served(name, str(trigger["type"])):
            continue
        functions.append(_function(name, declared, bindings))
    if not functions:
        raise HostError(f"{app_directory / SCRIPT} has no function with a {' or a '.join(TRIGGERS)}")
    return functions


def is_served(function: str, trigger: str) -> bool:
    """Return True if this host has the trigger; log a warning if it has not."""
    if trigger in TRIGGERS:
        return True
    logger.warning("Function %s is not run: this host has no %s, only %s", function, trigger, ", ".join(TRIGGERS))
    return False


@contextmanager
def without_the_librarys_advice() -> Iterator[None]:
    """Do not show `Auth level is not applied …`, which the real host does not show either."""

    def is_shown(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("Auth level is not applied")

    root = logging.getLogger()
    root.addFilter(is_shown)
    try:
        yield
    finally:
        root.removeFilter(is_shown)


def _execute(app_directory: Path) -> ModuleType:
    script = app_directory / SCRIPT
    if not script.is_file():
        raise HostError(f"{script} does not exist: this host runs the Python v2 programming model")
    specification = importlib.util.spec_from_file_location(_MODULE, script)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[_MODULE] = module
    try:
        specification.loader.exec_module(module)
    except Exception as error:  # the app's own code runs here, and may fail in any way
        raise HostError(f"{script} cannot be loaded: {type(error).__name__}: {error}") from error
    return module


def _registered_app(module: ModuleType) -> Any:
    apps = [value for value in vars(module).values() if isinstance(value, func.FunctionRegister)]
    if len(apps) != 1:
        raise HostError(f"{SCRIPT} must have exactly one FunctionApp at its top level; it has {len(apps)}")
    return apps[0]


def _function(name: str, declared: Any, bindings: list[dict[str, Any]]) -> Function:
    others = [f"{binding['type']} ({binding['name']})" for binding in bindings if binding["type"] not in TRIGGERS]
    if others:
        raise HostError(f"function {name}: this host has no bindings besides the trigger, not {', '.join(others)}")
    call = declared.get_user_function()
    parameter = bindings[0]["name"]
    parameters = set(inspect.signature(call).parameters)
    if parameter not in parameters:
        raise HostError(f"function {name}: its trigger binds {parameter!r}, which is no parameter of it")
    unbound = parameters - {parameter, "context"}
    if unbound:
        raise HostError(f"function {name}: no binding gives it {', '.join(sorted(unbound))}")
    try:
        retry_policy = RetryPolicy.from_settings(declared.get_settings_dict("retry_policy"))
    except HostError as error:
        raise HostError(f"function {name}: {error}") from error
    return Function(
        name=name,
        call=call,
        is_async=inspect.iscoroutinefunction(call),
        directory=str(Path(inspect.getfile(call)).parent),
        parameter=parameter,
        takes_text=_takes_text(name, call, parameter, bindings[0]["type"]),
        takes_context="context" in parameters,
        trigger=bindings[0],
        retry_policy=retry_policy,
    )


def _takes_text(name: str, call: Callable[..., Any], parameter: str, trigger: str) -> bool:
    """Return True if the parameter asks for the JSON text. Without an annotation it gets the library's object."""
    annotation = typing.get_type_hints(call).get(parameter)
    converter: Any = CosmosDBTriggerConverter if trigger == COSMOS_TRIGGER else TimerRequestConverter
    if annotation is str and trigger == COSMOS_TRIGGER:
        return True
    if annotation is None:
        return False
    if not isinstance(annotation, type) or not converter.check_input_type_annotation(annotation):
        wanted = "func.DocumentList, or str" if trigger == COSMOS_TRIGGER else "func.TimerRequest"
        raise HostError(f"function {name}: {parameter} is annotated {annotation!r}; write {wanted}")
    return False
