"""Stand-ins for `devtools_testutils`, the helpers of Microsoft's repository that no package has."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import types
from collections.abc import Callable
from typing import Any


class RecordedTestCase:
    """The base class of tests that may be recorded; here they never are."""

    is_live = True
    in_recording = False

    @staticmethod
    def await_prepared_test(function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def get_resource_name(self, name: str) -> str:
        return name

    def create_random_name(self, name: str) -> str:
        return name

    def get_credential(self, client: Any = None, **options: Any) -> Any:
        return credential(**options)


class Passing:
    """A decorator or preparer that hands on what it gets."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.options = options

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function


def unchanged(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def nothing(*arguments: Any, **options: Any) -> None:
    """A sanitizer of recordings, of which there are none."""


def credential(*, is_async: bool = False, **options: Any) -> Any:
    """The emulator's key, in the form that the suite's client takes."""
    if os.environ["SUITE"] == "cosmos":
        return os.environ["ACCOUNT_KEY"]
    module = "azure.servicebus.aio._base_handler_async" if is_async else "azure.servicebus._base_handler"
    made = importlib.import_module(module).ServiceBusSharedKeyCredential
    return made("RootManageSharedAccessKey", os.environ["SUITE_KEY"])


class EnvironmentPreparer:
    """`PowerShellPreparer`: gives a test what its repository's scripts would have put into variables."""

    def __init__(self, prefix: str, **values: Any) -> None:
        namespace = f"127.0.0.1{os.environ.get('SERVICEBUS_ENDPOINT_SUFFIX', '')}"
        known = {
            "servicebus_fully_qualified_namespace": namespace,
            "servicebus_connection_str": (
                f"Endpoint=sb://{namespace}/;SharedAccessKeyName=RootManageSharedAccessKey;"
                f"SharedAccessKey={os.environ.get('SUITE_KEY', '')};UseDevelopmentEmulator=true"
            ),
            "servicebus_sas_policy": "RootManageSharedAccessKey",
            "servicebus_sas_key": os.environ.get("SUITE_KEY", ""),
        }
        self._values = {name: known.get(name, value) for name, value in values.items()}

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        prepared: Callable[..., Any]
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def prepared(test: Any, **given: Any) -> Any:
                return await function(test, **accepted(function, {**self._values, **given}))

        else:

            @functools.wraps(function)
            def prepared(test: Any, **given: Any) -> Any:
                return function(test, **accepted(function, {**self._values, **given}))

        # pytest would take the values for fixtures.
        del prepared.__wrapped__  # type: ignore[attr-defined]
        prepared.prepared = True  # type: ignore[attr-defined]
        return prepared


def accepted(function: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """Those of the values that the function takes; preparers are generous."""
    parameters = inspect.signature(function).parameters
    takes_any = hasattr(function, "prepared") or any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return {name: value for name, value in values.items() if takes_any or name in parameters}


def is_live() -> bool:
    return True


def install(suite: str) -> None:
    """Put the stand-ins where the suite imports them from."""
    names: dict[str, Any] = {
        "AzureMgmtRecordedTestCase": RecordedTestCase,
        "AzureRecordedTestCase": RecordedTestCase,
        "AzureMgmtPreparer": Passing,
        "AzureTestError": RuntimeError,
        "FakeResource": types.SimpleNamespace,
        "ReservedResourceNameError": RuntimeError,
        "RandomNameResourceGroupPreparer": Passing,
        "CachedResourceGroupPreparer": Passing,
        "PowerShellPreparer": EnvironmentPreparer,
        "get_credential": credential,
        "get_region_override": lambda region: region,
        "is_live": is_live,
        "recorded_by_proxy": unchanged,
        "recorded_by_proxy_async": unchanged,
        "set_custom_default_matcher": nothing,
        "add_general_regex_sanitizer": nothing,
        "add_remove_header_sanitizer": nothing,
        "add_oauth_response_sanitizer": nothing,
        "RESOURCE_GROUP_PARAM": "resource_group",
    }
    for name in (
        "devtools_testutils",
        "devtools_testutils.aio",
        "devtools_testutils.helpers",
        "devtools_testutils.sanitizers",
        "devtools_testutils.resource_testcase",
        "devtools_testutils.azure_recorded_testcase",
    ):
        module = types.ModuleType(name)
        vars(module).update(names)
        sys.modules[name] = module
